/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* asprintf */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/comm/agree.h"
#include "runtime/comm/consensus.h"
#include "runtime/probe/gpu_check.h"
#include "runtime/probe/measure.h"
#include "topology/base/option_words.h"
#include "topology/job/site.h"

/* plait-probe: measure the fabric, write a site file. See plait-probe(1). */

static const char usage[] =
    "usage: plait-probe [OPTION]...\n"
    "\n"
    "Measure how long messages take inside a node, under one switch and "
    "across\n"
    "switches, and write a site file for plait plan and estimate. Run one\n"
    "process per GPU, as a job of its own: see plait-probe(1).\n"
    "\n"
    "  --out FILE              the site file; must not exist yet (stdout)\n"
    "  --fabric FILE           the switches between the nodes, as for plait\n"
    "                          plan; without it all are under one\n"
    "  --gpu-type TYPE         whose figures these are (what this node has)\n"
    "  --device auto|cuda|cpu  measure NCCL between GPUs, or MPI\n"
    "  --max-bytes N           the largest message (67108864)\n"
    "  --repeat N              times that each one is sent (20)\n"
    "  --preflight all|product for srun's preflight: time this task's GPU\n"
    "  --help, --version\n";

static const struct option options[] = {
    {"out", required_argument, NULL, 'o'},
    {"fabric", required_argument, NULL, 'f'},
    {"gpu-type", required_argument, NULL, 'g'},
    {"device", required_argument, NULL, 'd'},
    {"max-bytes", required_argument, NULL, 'm'},
    {"repeat", required_argument, NULL, 'r'},
    {"preflight", required_argument, NULL, 'p'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

static int parse_number(const char *flag, const char *text, long least,
                        long most, long *value, struct plait_error *err)
{
    char *end;
    long n;

    errno = 0;
    n = strtol(text, &end, 10);
    if (errno || *end || end == text || n < least || n > most)
        return plait_errorf(err,
                            "%s=%.40s: must be a whole number from %ld to "
                            "%ld",
                            flag, text, least, most);
    *value = n;
    return 0;
}

/* A type of the table or of the site file, in upper or lower case. */
static int read_type(struct plait_measure_args *args, struct plait_error *err)
{
    struct plait_site *site = plait_site_create(plait_site_path(), err);
    struct plait_gpu_type type;
    int rc;

    if (!site)
        return -1;
    rc = plait_site_gpu_type(site, args->type, &type, err);
    if (rc == 0) {
        memcpy(args->name, type.name, sizeof(args->name));
        args->gpu_type = args->name;
        args->like = plait_site_like(site, type.name);
    }
    plait_site_destroy(site);
    return rc;
}

static int read_option(int option, char *value, struct plait_measure_args *args,
                       struct plait_error *err)
{
    switch (option) {
    case 'o':
        args->out = value;
        return 0;
    case 'f':
        args->fabric = value;
        return 0;
    case 'g':
        args->type = value;
        return 0;
    case 'p':
        args->preflight = 1;
        args->rings = strcmp(value, "all") == 0;
        if (!args->rings && strcmp(value, "product") != 0)
            return plait_errorf(
                err, "--preflight %.60s: it must be all or product", value);
        return 0;
    case 'd':
        args->device = value;
        if (strcmp(value, "auto") == 0 || strcmp(value, "cuda") == 0 ||
            strcmp(value, "cpu") == 0)
            return 0;
        return plait_errorf(err,
                            "--device must be auto, cuda or cpu, not "
                            "'%.40s'",
                            value);
    case 'm':
        return parse_number("--max-bytes", value, 4096, 1L << 32,
                            &args->max_bytes, err);
    default:
        return parse_number("--repeat", value, 1, 10000, &args->repeat, err);
    }
}

static int refuse_unknown(const char *option, struct plait_error *err)
{
    char advice[PLAIT_OPTION_ADVICE];

    plait_option_advise(options, option, advice);
    return plait_errorf(err, "unknown option '%.60s'%s", option, advice);
}

/* 0 go on, 1 done (--help), -1 wrong usage. */
static int read_arguments(int argc, char **argv,
                          struct plait_measure_args *args,
                          struct plait_error *err)
{
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (option == 'h' || option == 'V') {
            fputs(option == 'h' ? usage : "plait-probe " PACKAGE_VERSION "\n",
                  stdout);
            return 1;
        }
        if (option == ':')
            return plait_errorf(err, "%s needs a value; see --help",
                                argv[optind - 1]);
        if (option == '?')
            return refuse_unknown(plait_option_word(argc, argv), err);
        if (read_option(option, optarg, args, err) < 0)
            return -1;
    }
    if (optind < argc)
        return plait_errorf(err, "unexpected argument '%s'; see --help",
                            argv[optind]);
    return 0;
}

/* Opened before the measurement, which takes minutes. An existing file is
 * kept: it may hold more than is written here. */
static FILE *open_out(const char *path, struct plait_error *err)
{
    FILE *out;
    int fd;

    if (!path)
        return stdout;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out)
        plait_errorf(err, "%s: %s%s", path, strerror(errno),
                     errno == EEXIST ? "; name another file and join the two "
                                       "by hand"
                                     : "");
    return out;
}

static int close_out(FILE *out, const char *path, struct plait_error *err)
{
    int failed = ferror(out);

    if ((out == stdout ? fflush(out) : fclose(out)) != 0 || failed)
        return plait_errorf(err, "%s: cannot write",
                            path ? path : "standard output");
    return 0;
}

/* Collective: how often and what is sent must be the same on all ranks. */
static int compare_arguments(struct plait_world *world,
                             const struct plait_measure_args *args,
                             struct plait_error *err)
{
    char *text;
    int rc;

    if (asprintf(&text,
                 "--max-bytes=%ld\n--repeat=%ld\n--gpu-type=%s\n"
                 "--fabric=%s\n--out=%s\n",
                 args->max_bytes, args->repeat,
                 args->type ? args->type : "not given",
                 args->fabric ? args->fabric : "not given",
                 args->out ? args->out : "not given") < 0)
        text = NULL;
    rc = plait_agree_on_text(world->comm, text, err);
    free(text);
    return rc;
}

/* Each node has its own site file. */
static int share_type(struct plait_world *world,
                      struct plait_measure_args *args, struct plait_error *err)
{
    int rc = args->type ? read_type(args, err) : 0;

    return plait_error_consensus(world->comm, rc, err);
}

static int run_measurement(struct plait_world *world,
                           struct plait_measure_args *args,
                           struct plait_error *err)
{
    int first = plait_comm_rank(world->comm) == 0, rc;
    FILE *out;

    if (compare_arguments(world, args, err) < 0 ||
        share_type(world, args, err) < 0)
        return -1;
    out = first ? open_out(args->out, err) : NULL;
    if (plait_error_consensus(world->comm, first && !out ? -1 : 0, err) < 0)
        return -1;
    rc = plait_measure_run(world, args, out, err);
    if (out && close_out(out, args->out, err) < 0 && rc == 0)
        rc = -1;
    if (first && rc < 0 && args->out)
        unlink(args->out);
    return rc;
}

int main(int argc, char **argv)
{
    struct plait_measure_args args = {
        .device = "auto", .max_bytes = 64L << 20, .repeat = 20};
    struct plait_error err = {""};
    struct plait_world world;
    int rc = read_arguments(argc, argv, &args, &err);

    if (rc > 0) {
        if (close_out(stdout, NULL, &err) == 0)
            return 0;
        fprintf(stderr, "plait-probe: %s\n", err.text);
        return 1;
    }
    if (rc < 0) {
        if (plait_rank_hint() == 0)
            fprintf(stderr, "plait-probe: %s\n", err.text);
        return 2;
    }
    if (args.preflight)
        return plait_gpu_check(args.rings);
    rc = plait_world_open(&world, args.device, "auto", &err);
    if (rc == 0 && plait_world_exposed(&world))
        fprintf(stderr, "plait-probe: %s\n", plait_world_exposed(&world));
    if (rc == 0)
        rc = run_measurement(&world, &args, &err);
    if (rc < 0 && err.text[0])
        fprintf(stderr, "plait-probe: %s\n", err.text);
    if (rc == PLAIT_MEASURE_BROKEN ||
        (rc < 0 && world.comm && plait_comm_failed(world.comm))) {
        plait_comm_abort(world.comm);
        exit(1);
    }
    plait_world_close(&world);
    return rc < 0;
}
