/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* memfd_create */
/* Hands on what a preflight found: to a file of the user's and to a program of
 * the site's. Both happen in a process of the user's, with his rights. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "topology/base/clock.h"
#include "topology/start/preflight.h"

int plait_preflight_hook_seconds = 10;

/* ---- the report ---- */

/* Texts come from other tasks, but without control characters. */
static void print_text(FILE *file, const char *text)
{
    putc('"', file);
    for (; *text; text++)
        if (*text >= ' ' && *text <= '~') {
            if (*text == '"' || *text == '\\')
                putc('\\', file);
            putc(*text, file);
        } else {
            putc('?', file);
        }
    putc('"', file);
}

static void print_figure(FILE *file, const char *name, double value)
{
    if (isfinite(value))
        fprintf(file, ", \"%s\": %.4g", name, value);
}

/* Only where GPUs were timed, or could not be. */
static void print_gpus(FILE *file, const struct plait_preflight_node *node)
{
    int rings = 0;

    print_figure(file, "gpu_tflops", node->gpu / 1e12);
    for (int i = 0; i < PLAIT_PREFLIGHT_RINGS; i++)
        if (isfinite(node->ring[i]))
            fprintf(file, "%s\"%s\": %.4g",
                    rings++ ? ", " : ", \"rings_gbs\": {",
                    plait_preflight_rings[i], node->ring[i] / 1e9);
    if (rings)
        putc('}', file);
    if (node->notes[0]) {
        fprintf(file, ", \"notes\": ");
        print_text(file, node->notes);
    }
}

static void print_node(FILE *file, const struct plait_preflight_node *node)
{
    fprintf(file, "    {\"node\": ");
    print_text(file, node->name);
    fprintf(file, ", \"good\": %s", node->why[0] ? "false" : "true");
    print_figure(file, "gflops", node->product / 1e9);
    print_figure(file, "memory_gbs", node->memory / 1e9);
    print_figure(file, "sends_mbs", node->sends / 1e6);
    print_figure(file, "receives_mbs", node->receives / 1e6);
    print_figure(file, "nic_gbits", node->nic * 8 / 1e9);
    print_figure(file, "others", node->others);
    print_gpus(file, node);
    fprintf(file, ", \"faults\": ");
    print_text(file, node->faults);
    fprintf(file, ", \"why\": ");
    print_text(file, node->why);
    putc('}', file);
}

void plait_preflight_print(const struct plait_preflight_node *nodes, int n,
                           const char *job, FILE *file)
{
    const char *comma = "";

    fprintf(file, "{\"job\": ");
    print_text(file, job);
    fprintf(file, ", \"bad\": [");
    for (int i = 0; i < n; i++)
        if (nodes[i].why[0]) {
            fprintf(file, "%s", comma);
            print_text(file, nodes[i].name);
            comma = ", ";
        }
    fprintf(file, "],\n  \"nodes\": [");
    for (int i = 0; i < n; i++) {
        fprintf(file, "%s\n", i ? "," : "");
        print_node(file, &nodes[i]);
    }
    fprintf(file, "]}\n");
}

static int write_report(const char *path,
                        const struct plait_preflight_node *nodes, int n,
                        const char *job, struct plait_error *err)
{
    FILE *file = fopen(path, "we");
    int bad;

    if (!file)
        return plait_errorf(err, "cannot write the report %.200s: %s", path,
                            strerror(errno));
    plait_preflight_print(nodes, n, job, file);
    bad = ferror(file);
    bad |= fclose(file);
    return bad ? plait_errorf(err, "cannot write the report %.200s: %s", path,
                              strerror(errno))
               : 0;
}

/* ---- the site's program ---- */

/* Its status, as waitpid() has it; -1 where it took too long. */
static int wait_hook(pid_t pid)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    double begin = plait_clock_now();
    int status = 0;
    pid_t rc;

    while ((rc = waitpid(pid, &status, WNOHANG)) == 0 ||
           (rc < 0 && errno == EINTR)) {
        if (plait_clock_now() - begin > plait_preflight_hook_seconds) {
            plait_preflight_end((int)pid);
            return -1;
        }
        nanosleep(&pause, NULL);
    }
    return rc < 0 ? -1 : status;
}

/* In slurmstepd the environment is slurmd's, which is no user's business. */
static int start_hook(const char *hook, int in, const char *job)
{
    static char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    char id[96], *const environment[] = {path, id, NULL},
                        *const argv[] = {(char *)hook, NULL};
    const struct plait_preflight_program program = {
        .path = hook, .argv = argv, .env = environment, .in = in, .out = -1};

    snprintf(id, sizeof(id), "SLURM_JOB_ID=%.*s", (int)strcspn(job, "."), job);
    return plait_preflight_start(&program);
}

static int run_hook(const char *hook, const struct plait_preflight_node *nodes,
                    int n, const char *job, struct plait_error *err)
{
    int fd = memfd_create("plait-preflight", MFD_CLOEXEC), status, pid;
    FILE *report = fd < 0 ? NULL : fdopen(fd, "w+e");

    if (!report) {
        plait_errorf(err, "cannot start %.200s: %s", hook, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    plait_preflight_print(nodes, n, job, report);
    fflush(report);
    rewind(report);
    pid = start_hook(hook, fd, job);
    if (pid < 0) {
        fclose(report);
        return plait_errorf(err, "cannot start %.200s: %s", hook,
                            strerror(errno));
    }
    status = wait_hook(pid);
    fclose(report);
    if (status == -1)
        return plait_errorf(err, "%.200s has not ended in %d s", hook,
                            plait_preflight_hook_seconds);
    if (status == 0)
        return 0;
    return WIFEXITED(status)
               ? plait_errorf(err, "%.200s ended with status %d", hook,
                              WEXITSTATUS(status))
               : plait_errorf(err, "%.200s was killed by signal %d", hook,
                              WTERMSIG(status));
}

/* An ignored SIGCHLD, which the task inherits, would keep the status back. */
static int call_hook(const char *hook, const struct plait_preflight_node *nodes,
                     int n, const char *job, struct plait_error *err)
{
    const struct sigaction heed = {.sa_handler = SIG_DFL};
    struct sigaction old;
    int rc;

    sigaction(SIGCHLD, &heed, &old);
    rc = run_hook(hook, nodes, n, job, err);
    sigaction(SIGCHLD, &old, NULL);
    return rc;
}

int plait_preflight_hand_on(const struct plait_preflight *preflight,
                            const struct plait_preflight_node *nodes, int n,
                            struct plait_error *err)
{
    const char *job = preflight->launch->jobid;
    int rc = 0, bad = 0;

    for (int i = 0; i < n; i++)
        bad += nodes[i].why[0] != '\0';
    if (preflight->report && *preflight->report)
        rc = write_report(preflight->report, nodes, n, job, err);
    if (bad && preflight->hook && *preflight->hook &&
        call_hook(preflight->hook, nodes, n, job, err) < 0)
        rc = -1;
    return rc;
}
