/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

/* Seconds for a peer to start, in which PyTorch compiles its model. */
#define START_S 300

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    stopped = signal;
}

void bench_catch_signals(void)
{
    struct sigaction act = {.sa_handler = stop};

    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    act.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &act, NULL);
}

bool bench_stopped(void)
{
    return stopped != 0;
}

double bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void bench_add(struct bench_samples *s, double value)
{
    if (s->count < (int)(sizeof(s->value) / sizeof(*s->value)))
        s->value[s->count++] = value;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double quantile(const struct bench_samples *s, double q)
{
    struct bench_samples sorted = *s;
    double at = q * (s->count - 1);
    int i = (int)at;

    if (s->count == 0)
        return NAN;
    qsort(sorted.value, (size_t)s->count, sizeof(double), ascending);
    if (i + 1 >= s->count)
        return sorted.value[s->count - 1];
    return sorted.value[i] + (at - i) * (sorted.value[i + 1] - sorted.value[i]);
}

double bench_median(const struct bench_samples *s)
{
    return quantile(s, 0.5);
}

double bench_least(const struct bench_samples *s)
{
    return quantile(s, 0);
}

double bench_most(const struct bench_samples *s)
{
    return quantile(s, 1);
}

static void lose(struct bench_peer *p, const char *why)
{
    bench_peer_stop(p);
    snprintf(p->name, sizeof(p->name), "missing: %s", why);
}

_Noreturn void bench_become(int in, int out, char *const argv[],
                            const char *const env[])
{
    signal(SIGPIPE, SIG_DFL);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    for (; env != NULL && *env != NULL; env++)
        putenv((char *)*env);
    execvp(argv[0], argv);
    _exit(127);
}

void bench_peer_miss(struct bench_peer *p, const char *label, const char *why)
{
    memset(p, 0, sizeof(*p));
    p->label = label;
    snprintf(p->name, sizeof(p->name), "missing: %s", why);
}

/* Reads the next line within the time limit; a peer sends none unasked. */
static const char *read_line(struct bench_peer *p, char *line, int size)
{
    struct pollfd fd = {fileno(p->from), POLLIN, 0};
    int rc = poll(&fd, 1, p->limit_s > 0 ? 1000 * p->limit_s : -1);

    if (rc == 0)
        return "it took too long";
    if (rc < 0)
        return "interrupted";
    return fgets(line, size, p->from) != NULL ? NULL : "it ended in mid-run";
}

void bench_peer_start(struct bench_peer *p, const char *label,
                      char *const argv[], const char *const env[])
{
    int in[2], out[2];
    char line[sizeof(p->name)] = "";

    memset(p, 0, sizeof(*p));
    p->label = label;
    p->limit_s = START_S;
    if (pipe(in) < 0 || pipe(out) < 0) {
        snprintf(p->name, sizeof(p->name), "missing: no pipe");
        return;
    }
    p->pid = fork();
    if (p->pid == 0)
        bench_become(in[0], out[1], argv, env);
    close(in[0]);
    close(out[1]);
    p->to = fdopen(in[1], "w");
    p->from = fdopen(out[0], "r");
    if (p->pid < 0 || read_line(p, line, sizeof(line)) != NULL ||
        strncmp(line, "ready ", 6) != 0) {
        lose(p, "it does not start (see the messages above)");
        return;
    }
    line[strcspn(line, "\n")] = '\0';
    snprintf(p->name, sizeof(p->name), "%s", line + 6);
}

double bench_peer_ask(struct bench_peer *p, const char *request)
{
    char line[64], *end;
    const char *why;
    double value;

    if (p->pid <= 0)
        return NAN;
    fprintf(p->to, "%s\n", request);
    why = fflush(p->to) != 0 ? "it ended in mid-run"
                             : read_line(p, line, sizeof(line));
    if (why != NULL) {
        lose(p, why);
        return NAN;
    }
    value = strtod(line, &end);
    if (end == line) {
        lose(p, "it answered nonsense");
        return NAN;
    }
    return value;
}

void bench_peer_stop(struct bench_peer *p)
{
    if (p->to != NULL)
        fclose(p->to);
    if (p->from != NULL)
        fclose(p->from);
    if (p->pid > 0) {
        kill(p->pid, SIGTERM);
        waitpid(p->pid, NULL, 0);
    }
    p->to = p->from = NULL;
    p->pid = 0;
}
