/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/stuck/ask_nodes.h"
#include "runtime/stuck/recorder.h"
#include "runtime/stuck/runs.h"
#include "runtime/stuck/stacks.h"
#include "topology/base/error.h"
#include "topology/base/option_words.h"

/* plait-stuck: says which rank the others of a hanging run wait for. */

static const char help[] =
    "usage: plait-stuck [JOBID|PID|DIR] [OPTION]...\n"
    "Say which rank the others of a run that hangs wait for, and where it is:\n"
    "of a job of Slurm's, of a process and what it started, of the runs with\n"
    "working directory DIR, or of all that you have on this machine; see\n"
    "plait-stuck(1). Of a job or a process other trainers are shown too, by\n"
    "their stacks.\n"
    "\n"
    "  --pid PID              only process PID and what it started\n"
    "  --recorder PREFIX      of any trainer: what torch's flight recorder "
    "left\n"
    "                         in PREFIX0, PREFIX1, ...\n"
    "  --wait SECONDS         how long to see whether anything moves (2)\n"
    "  --dump                 print what the ranks of this machine say, for\n"
    "                         another plait-stuck to read\n"
    "  --help, --version\n";

struct args {
    struct plait_stuck_which which;
    const char *recorder; /* NULL: none */
    int wait;
    bool dump;
};

/* -- what is said -------------------------------------------------------- */

static void say_missing(const struct plait_stuck_run *run)
{
    int missing = -1;

    if (run->n >= run->world)
        return;
    for (int i = 0; missing < 0 && i < run->n; i++)
        if (run->rank[i].rank != i)
            missing = i;
    printf("; %d of %d ranks were found, rank %d was not", run->n, run->world,
           missing < 0 ? run->n : missing);
}

/* Root sees the runs of all. */
static void say_owner(unsigned owner)
{
    if (owner != geteuid())
        printf("user %u: ", owner);
}

static void say_run(const struct plait_stuck_run *run)
{
    struct plait_verdict verdict;
    char text[1000];
    int64_t step = 0;

    for (int i = 0; i < run->n; i++)
        step = run->rank[i].step > step ? run->rank[i].step : step;
    say_owner(run->owner);
    if (run->job[0])
        printf("job %s: ", run->job);
    printf("%d ranks, step %" PRId64 ": ", run->world, step);
    if (run->moved) {
        printf("it goes on");
    } else if (plait_stuck_judge(run->rank, run->n, &verdict) == 0) {
        plait_stuck_sentence(run->rank, run->n, &verdict, time(NULL), text,
                             sizeof(text));
        printf("%s", text);
    }
    say_missing(run);
    printf("\n");
}

/* Trainers that keep no record. */
static void say_stacks(const struct plait_stacks *stacks)
{
    static char text[16384];

    for (int i = 0, n; i < stacks->n; i += n) {
        for (n = 1; i + n < stacks->n &&
                    stacks->at[i].owner == stacks->at[i + n].owner &&
                    !strcmp(stacks->at[i].job, stacks->at[i + n].job);)
            n++;
        say_owner(stacks->at[i].owner);
        plait_stacks_explain(&stacks->at[i], n, text, sizeof(text));
        printf("%s\n", text);
    }
}

static int say_none(const struct args *args, struct plait_error *err)
{
    if (args->which.job)
        return plait_errorf(err,
                            "job %.40s: found no rank of it on its nodes (or "
                            "on this machine, if Slurm shows no such job)",
                            args->which.job);
    if (args->which.dir)
        return plait_errorf(err,
                            "%s: none of your plait-train processes on this "
                            "machine has this working directory",
                            args->which.dir);
    return plait_errorf(err, "you have no plait-train process on this machine");
}

static int explain_dumps(const char *prefix, struct plait_error *err)
{
    struct plait_recorder recorder = {0};
    struct plait_verdict verdict;
    char text[1000];
    int rc = plait_recorder_read(&recorder, prefix, err);

    if (rc == 0 && plait_stuck_judge(recorder.rank, recorder.n, &verdict) < 0)
        rc = plait_errorf(err, "out of memory");
    if (rc == 0) {
        plait_stuck_sentence(recorder.rank, recorder.n, &verdict,
                             (time_t)recorder.now, text, sizeof(text));
        printf("%d ranks: %s\n", recorder.n, text);
    }
    plait_recorder_clear(&recorder);
    return rc;
}

/* On this machine: ranks with records, else by their stacks, if a job or a
 * process was named. */
static int find_here(const struct args *args,
                     const struct plait_stuck_which *which,
                     struct plait_stuck_runs *runs, struct plait_stacks *stacks)
{
    int rc = plait_stuck_runs_find(which, args->wait, runs);

    if (rc == 0 && runs->n == 0 && (which->job || which->pid))
        rc = plait_stacks_find(which, args->wait, stacks);
    return rc;
}

/* In a step of the job Slurm says whose it is. */
static void find_owner(struct plait_stuck_which *which)
{
    const char *job = getenv("SLURM_JOB_ID"), *uid = getenv("SLURM_JOB_UID");

    if (!which->job || !job || !uid || strcmp(which->job, job) != 0)
        return;
    which->owner = (unsigned)strtoul(uid, NULL, 10);
    which->owned = true;
}

/* The number may be of a process where no job has it. */
static int find_all(const struct args *args, struct plait_stuck_runs *runs,
                    struct plait_stacks *stacks, struct plait_error *err)
{
    const char *job = args->which.job;
    struct plait_stuck_which process = {.pid = job ? atoi(job) : 0};
    struct plait_stuck_which which = args->which;
    char silent[256] = "";
    int rc = 0;

    if (job && !args->dump)
        rc = plait_stuck_ask_nodes(job, args->wait, runs, stacks, silent,
                                   sizeof(silent), err);
    if (*silent && rc > 0)
        fprintf(stderr, "plait-stuck: job %s: no answer from %s\n", job,
                silent);
    if (rc)
        return rc < 0 ? -1 : 0;
    if (args->dump)
        find_owner(&which);
    rc = find_here(args, &which, runs, stacks);
    if (rc == 0 && job && !args->dump && runs->n == 0 && stacks->n == 0)
        rc = find_here(args, &process, runs, stacks);
    return rc < 0 ? plait_errorf(err, "out of memory") : 0;
}

static int explain(const struct args *args, struct plait_error *err)
{
    struct plait_stuck_runs runs = {0};
    struct plait_stacks stacks = {0};
    int rc = find_all(args, &runs, &stacks, err);

    if (rc == 0 && args->dump) {
        plait_stuck_say_node();
        plait_stuck_runs_dump(&runs);
        plait_stacks_dump(&stacks);
    } else if (rc == 0 && runs.n == 0 && stacks.n == 0) {
        rc = say_none(args, err);
    }
    for (int i = 0; rc == 0 && !args->dump && i < runs.n; i++)
        say_run(&runs.run[i]);
    if (rc == 0 && !args->dump && runs.n == 0)
        say_stacks(&stacks);
    plait_stuck_runs_clear(&runs);
    plait_stacks_clear(&stacks);
    return rc;
}

/* -- the command line ---------------------------------------------------- */

static bool is_number(const char *text)
{
    size_t n = strlen(text);

    return n > 0 && n < 10 && strspn(text, "0123456789") == n;
}

static int take_place(const char *place, struct args *args,
                      struct plait_error *err)
{
    struct stat st;

    if (stat(place, &st) == 0 && S_ISDIR(st.st_mode))
        args->which.dir = place;
    else if (is_number(place))
        args->which.job = place;
    else
        return plait_errorf(err,
                            "%s is neither a directory nor the number of a job "
                            "or a process",
                            place);
    return 0;
}

static int take_option(int option, const char *value, struct args *args,
                       struct plait_error *err)
{
    switch (option) {
    case 'p':
        if (!is_number(value) || (args->which.pid = atoi(value)) == 0)
            return plait_errorf(err, "--pid %s is not a process number", value);
        return 0;
    case 'w':
        args->wait = atoi(value);
        if (!is_number(value) || args->wait > 600)
            return plait_errorf(err, "--wait %s: give 0 to 600 seconds", value);
        return 0;
    case 'r':
        args->recorder = value;
        return 0;
    case 'd':
        args->dump = true;
        return 0;
    default:
        return -1;
    }
}

static int refuse_option(const struct option *options, const char *word,
                         struct plait_error *err)
{
    char advice[PLAIT_OPTION_ADVICE];

    plait_option_advise(options, word, advice);
    return plait_errorf(err, "unknown option %.60s, or no value to it%s", word,
                        advice);
}

/* 0: go on; 1: done; -1: wrong usage. */
static int read_args(int argc, char **argv, struct args *args,
                     struct plait_error *err)
{
    static const struct option options[] = {
        {"pid", required_argument, NULL, 'p'},
        {"recorder", required_argument, NULL, 'r'},
        {"wait", required_argument, NULL, 'w'},
        {"dump", no_argument, NULL, 'd'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'h' || option == 'v') {
            fputs(option == 'h' ? help : "plait-stuck " PACKAGE_VERSION "\n",
                  stdout);
            return 1;
        }
        if (option == '?')
            return refuse_option(options, plait_option_word(argc, argv), err);
        if (take_option(option, optarg, args, err) < 0)
            return -1;
    }
    if (argc - optind > 1)
        return plait_errorf(err, "give one JOBID, PID or DIR; see --help");
    return optind < argc ? take_place(argv[optind], args, err) : 0;
}

int main(int argc, char **argv)
{
    struct args args = {.wait = 2};
    struct plait_error err = {""};
    int rc = read_args(argc, argv, &args, &err), status = rc < 0 ? 2 : 0;

    if (rc == 0 && (args.recorder ? explain_dumps(args.recorder, &err)
                                  : explain(&args, &err)) < 0)
        status = 1;
    if (status)
        fprintf(stderr, "plait-stuck: %s\n", err.text);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "plait-stuck: standard output: %s\n", strerror(errno));
    return 1;
}
