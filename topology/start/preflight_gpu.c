/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a preflight that has plait-probe time a task's GPU. That is a
 * program of its own, as the plugin is not linked to CUDA, and as a GPU that
 * hangs must not keep the task. */
#define _GNU_SOURCE /* pipe2 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/clock.h"
#include "topology/start/preflight.h"

/* As spank_plait(8) says. */
int plait_preflight_probe_seconds = 6;

const char *const plait_preflight_rings[PLAIT_PREFLIGHT_RINGS] = {"tp", "cp",
                                                                  "pp", "dp"};
/* The groups that these rings are of, in the same order. */
static const enum plait_group groups[PLAIT_PREFLIGHT_RINGS] = {
    PLAIT_GROUP_TP, PLAIT_GROUP_CP, PLAIT_GROUP_PP, PLAIT_GROUP_DP_CP};

/* ---- the program ---- */

/* Whether the program is in a folder of so many bytes. */
static int is_in(const char *folder, int bytes, char *probe, size_t size)
{
    int n = snprintf(probe, size, "%.*s/plait-probe", bytes, folder);

    /* Only from the root: a preflight is in no folder of the user's. */
    return bytes > 0 && *folder == '/' && (size_t)n < size &&
           access(probe, X_OK) == 0;
}

void plait_preflight_find_probe(const char *path, const char *beside,
                                char *probe, size_t size)
{
    while (path && *path) {
        int bytes = (int)strcspn(path, ":");

        if (is_in(path, bytes, probe, size))
            return;
        path += bytes + (path[bytes] == ':');
    }
    if (!beside || !is_in(beside, (int)strlen(beside), probe, size))
        *probe = '\0';
}

/* Variables that the probe must not have: it meets at a port of its own, and
 * without spare tasks. */
static int is_left_out(const char *variable)
{
    static const char *const names[] = {PLAIT_ENV_MASTER_PORT "=",
                                        "PLAIT_ELASTIC=", PLAIT_ENV_SPARES "=",
                                        PLAIT_ENV_SPARE "="};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return 1;
    return 0;
}

static char **make_environment(char *const *from, char *port)
{
    size_t n = 0, used = 0;
    char **to;

    while (from[n])
        n++;
    to = calloc(n + 2, sizeof(*to));
    if (!to)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (!is_left_out(from[i]))
            to[used++] = from[i];
    to[used] = port;
    return to;
}

/* The id of its group, or -1. `port`: 0 for no rings. */
static int start_probe(const struct plait_preflight *p, int port, int out)
{
    static char name[] = "plait-probe", all[] = "--preflight=all",
                alone[] = "--preflight=product";
    char *const argv[] = {name, port ? all : alone, NULL};
    char text[sizeof(PLAIT_ENV_MASTER_PORT) + 16];
    char **env;
    int group = -1;

    snprintf(text, sizeof(text), PLAIT_ENV_MASTER_PORT "=%d", port);
    env = make_environment(p->env ? p->env : environ, text);
    if (env)
        group = plait_preflight_start(
            &(struct plait_preflight_program){p->probe, argv, env, -1, out});
    free(env);
    return group;
}

static int has_line(const char *text, const char *line)
{
    size_t size = strlen(line);

    for (const char *at = text; (at = strstr(at, line)); at++)
        if ((at == text || at[-1] == '\n') && at[size] == '\n')
            return 1;
    return 0;
}

/* Add what is there to text[*used], as far as there is room: a library may
 * print a lot. As read(). */
static ssize_t read_some(int fd, char *text, size_t size, size_t *used)
{
    char rest[512];
    size_t room = size - 1 - *used;
    ssize_t n = read(fd, room ? text + *used : rest, room ? room : 512);

    *used += room && n > 0 ? (size_t)n : 0;
    text[*used] = '\0';
    return n;
}

/* What it prints, until it ends or the time is over. 1: it has to be ended,
 * `*begun` seconds after its line "begun", or -1. */
static int read_until(int fd, double until, char *text, size_t size,
                      double *begun)
{
    size_t used = 0;
    ssize_t n = 1;
    double since = 0;

    *text = '\0';
    while (n != 0) {
        double left = until - plait_clock_now();
        struct pollfd one = {fd, POLLIN, 0};

        if (left <= 0)
            break;
        if (poll(&one, 1, (int)(left * 1000) + 1) <= 0)
            continue;
        n = read_some(fd, text, size, &used);
        if (!(since > 0) && has_line(text, "begun"))
            since = plait_clock_now();
    }
    *begun = since > 0 ? plait_clock_now() - since : -1;
    return n != 0;
}

/* ---- what it says ---- */

static void set_note(struct plait_preflight_gpu *gpu, const char *text)
{
    if (!gpu->note[0]) /* the first is the cause of others */
        snprintf(gpu->note, sizeof(gpu->note), "%s", text);
}

/* 0: it is none of plait-probe's, which a library may have printed. */
static int read_line(const char *line, struct plait_preflight_gpu *gpu)
{
    char name[8];
    double rate;

    if (sscanf(line, "product %31lf", &rate) == 1 && rate > 0) {
        gpu->product = rate;
        gpu->state = PLAIT_PREFLIGHT_GPU_TIMED;
    } else if (strncmp(line, "unusable ", 9) == 0) {
        set_note(gpu, line + 9);
        gpu->state = PLAIT_PREFLIGHT_GPU_UNUSABLE;
    } else if (strncmp(line, "note ", 5) == 0) {
        set_note(gpu, line + 5);
    } else if (sscanf(line, "ring %7s %31lf", name, &rate) == 2 && rate > 0) {
        for (int i = 0; i < PLAIT_PREFLIGHT_RINGS; i++)
            if (strcmp(name, plait_preflight_rings[i]) == 0)
                gpu->ring[i] = rate;
    } else {
        return strcmp(line, "started") == 0 || strcmp(line, "begun") == 0 ||
               strcmp(line, "connected") == 0 || strcmp(line, "end") == 0;
    }
    return 1;
}

static const char *name_late(const char *last)
{
    if (strcmp(last, "started") == 0 || strcmp(last, "begun") == 0)
        return "not all products were timed";
    if (strncmp(last, "product", 7) == 0)
        return "NCCL has not connected the ranks";
    if (strcmp(last, "connected") == 0 || strncmp(last, "ring", 4) == 0)
        return "not all rings of NCCL were timed";
    return "CUDA has not started";
}

/* What has not come in time. A GPU that has ended a product needs far less than
 * a third of that time for the others; a library or NCCL's connections may only
 * be slow. */
static void find_late(const char *last, double begun,
                      struct plait_preflight_gpu *gpu)
{
    char text[PLAIT_PREFLIGHT_NOTE];

    if (strcmp(last, "begun") == 0 &&
        begun >= plait_preflight_probe_seconds / 3.0) {
        gpu->state = PLAIT_PREFLIGHT_GPU_STUCK;
        return;
    }
    snprintf(text, sizeof(text), "%s in %d s", name_late(last),
             plait_preflight_probe_seconds);
    set_note(gpu, text);
}

void plait_preflight_read_probe(char *text, int late, double begun,
                                struct plait_preflight_gpu *gpu)
{
    char *save;
    const char *last = "";

    /* The last line may be a part of one. */
    if (strrchr(text, '\n'))
        *strrchr(text, '\n') = '\0';
    else
        *text = '\0';
    for (char *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        if (read_line(line, gpu))
            last = line;
    }
    /* Behind "end" it has nothing to do. */
    if (late && strcmp(last, "end") != 0)
        find_late(last, begun, gpu);
    else if (*last && strcmp(last, "end") != 0)
        set_note(gpu, "plait-probe ended before it had timed all");
    plait_preflight_clean_name(gpu->note);
}

/* ---- all of it ---- */

int plait_preflight_has_probe(const struct plait_preflight *p)
{
    return p->probe && *p->probe && *p->launch->gpu_busid;
}

/* NCCL waits for all ranks, and those without a GPU start no program. */
static int have_all(const struct plait_preflight_contact *contacts, int n)
{
    for (int i = 0; i < n; i++)
        if (!contacts[i].gpu)
            return 0;
    return 1;
}

/* The device id that the kernel has read from it: GPUs of different types
 * differ in their speed by design. */
static int find_type(const char *busid)
{
    char path[64];
    unsigned type = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/device", busid);
    file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "0x%4x", &type) != 1)
        type = 0;
    fclose(file);
    return (int)type;
}

/* Of each ring of this rank, whether it goes over several nodes. */
static int find_wide(const struct plait_launch *launch,
                     const struct plait_preflight_contact *contacts)
{
    int *members = calloc((size_t)launch->world_size, sizeof(*members));
    int wide = 0;

    for (int i = 0; members && i < PLAIT_PREFLIGHT_RINGS; i++) {
        int n = plait_layout_group(&launch->layout, groups[i], launch->rank,
                                   members);

        for (int k = 0; k < n; k++)
            if (contacts[members[k]].node_rank != launch->node_rank)
                wide |= 1 << i;
    }
    free(members);
    return wide;
}

void plait_preflight_probe_gpu(const struct plait_preflight *p, int port,
                               const struct plait_preflight_contact *contacts,
                               struct plait_preflight_report *report)
{
    struct plait_preflight_gpu *gpu = &report->gpu;
    double until = plait_clock_now() + plait_preflight_probe_seconds, begun;
    char text[8192];
    int fds[2], group, late;

    if (!plait_preflight_has_probe(p) || pipe2(fds, O_CLOEXEC) < 0)
        return;
    snprintf(gpu->busid, sizeof(gpu->busid), "%s", p->launch->gpu_busid);
    gpu->type = find_type(gpu->busid);
    if (!have_all(contacts, p->launch->world_size))
        port = 0;
    group = start_probe(p, port, fds[1]);
    close(fds[1]);
    if (group > 0) {
        late = read_until(fds[0], until, text, sizeof(text), &begun);
        plait_preflight_end(group);
        plait_preflight_read_probe(text, late, begun, gpu);
        gpu->wide = find_wide(p->launch, contacts);
    }
    close(fds[0]);
}

/* ---- what tasks tell each other ---- */

void plait_preflight_print_gpu(const struct plait_preflight_gpu *gpu,
                               char *text, size_t size)
{
    *text = '\0';
    if (gpu->state == PLAIT_PREFLIGHT_GPU_UNKNOWN && !gpu->note[0])
        return;
    snprintf(text, size, "%d %s %d %.4g %.4g %.4g %.4g %.4g %d %s",
             (int)gpu->state, gpu->busid, gpu->type, gpu->product, gpu->ring[0],
             gpu->ring[1], gpu->ring[2], gpu->ring[3], gpu->wide, gpu->note);
}

/* The address of a PCI device. */
static int is_busid(const char *text)
{
    return strspn(text, "0123456789abcdefABCDEF:.") == strlen(text);
}

static int are_rates(const double *rates, int n)
{
    for (int i = 0; i < n; i++)
        if (!(rates[i] >= 0 && rates[i] < 1e30))
            return 0;
    return 1;
}

int plait_preflight_read_gpu(const char *text, struct plait_preflight_gpu *gpu)
{
    int state, at = 0;

    memset(gpu, 0, sizeof(*gpu));
    if (!*text)
        return 0;
    if (sscanf(text, "%9d %15s %9d %31lf %31lf %31lf %31lf %31lf %9d%n", &state,
               gpu->busid, &gpu->type, &gpu->product, &gpu->ring[0],
               &gpu->ring[1], &gpu->ring[2], &gpu->ring[3], &gpu->wide,
               &at) != 9 ||
        text[at] != ' ' || state < 0 || state >= PLAIT_PREFLIGHT_GPU_STATES ||
        gpu->wide < 0 || gpu->wide >= 1 << PLAIT_PREFLIGHT_RINGS ||
        !is_busid(gpu->busid) || !are_rates(&gpu->product, 1) ||
        !are_rates(gpu->ring, PLAIT_PREFLIGHT_RINGS))
        return -1;
    gpu->state = (enum plait_preflight_gpu_state)state;
    snprintf(gpu->note, sizeof(gpu->note), "%s", text + at + 1);
    plait_preflight_clean_name(gpu->note);
    return 0;
}
