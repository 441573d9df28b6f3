/* SPDX-License-Identifier: Apache-2.0 */
/* By which way a communicator's transfers go: NCCL has no call that tells it,
 * only its log. Rank 0 lets NCCL write that into memory, unless the user has a
 * log of his own. */
#define _GNU_SOURCE
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/comm/nccl/nccl_private.h"

static const char *const variables[] = {"NCCL_DEBUG", "NCCL_DEBUG_FILE",
                                        "NCCL_DEBUG_SUBSYS"};
enum { VARIABLES = sizeof(variables) / sizeof(variables[0]) };

/* Whether a file of NCCL's settings asks for its log. */
static bool file_asks(const char *path)
{
    FILE *f = fopen(path, "re");
    bool asks = false;
    char line[200];

    while (f != NULL && !asks && fgets(line, sizeof(line), f) != NULL)
        asks = strncmp(line, variables[0], strlen(variables[0])) == 0;
    if (f != NULL)
        fclose(f);
    return asks;
}

/* By the environment, or a file of the user or the system. */
static bool is_asked_for(void)
{
    const char *file = getenv("NCCL_CONF_FILE"), *home = getenv("HOME");
    char path[4096];

    for (int i = 0; i < VARIABLES; i++)
        if (getenv(variables[i]) != NULL)
            return true;
    snprintf(path, sizeof(path), "%s/.nccl.conf", home != NULL ? home : "");
    return file_asks(file != NULL ? file : path) || file_asks("/etc/nccl.conf");
}

void nccl_log_begin(struct nccl_world *w)
{
    char path[40];

    w->log = -1;
    if (w->host->rank > 0 || is_asked_for())
        return;
    w->log = memfd_create("nccl-log", MFD_CLOEXEC);
    if (w->log < 0)
        return;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", w->log);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_FILE", path, 1);
    setenv("NCCL_DEBUG_SUBSYS", "INIT", 1);
}

/* NCCL has opened its log by now; programs that this one starts shall not. */
void nccl_log_opened(struct nccl_world *w)
{
    for (int i = 0; i < VARIABLES && w->log >= 0; i++)
        unsetenv(variables[i]);
}

void nccl_log_end(struct nccl_world *w)
{
    nccl_log_opened(w);
    if (w->log >= 0)
        close(w->log);
    w->log = -1;
}

/* Adds "P2P", "SHM" or "NET/IB", with " GDR" where the GPU's memory is read by
 * the network card; the word is NCCL's, such as NET/IB/0/GDRDMA. */
static void add_way(struct nccl_links *links, const char *word)
{
    size_t all = strcspn(word, " \n"), n = strcspn(word, "/ \n");
    size_t used = strlen(links->ways);
    char way[32];

    if (strncmp(word, "NET/", 4) == 0)
        n = 4 + strcspn(word + 4, "/ \n");
    snprintf(way, sizeof(way), "%.*s%s", n < 20 ? (int)n : 20, word,
             memmem(word, all, "GDRDMA", 6) != NULL ? " GDR" : "");
    if (strstr(links->ways, way) == NULL)
        snprintf(links->ways + used, sizeof(links->ways) - used, "%s%s",
                 used > 0 ? " and " : "", way);
}

static void take_line(struct nccl_links *links, const char *line)
{
    const char *text = strstr(line, "NCCL INFO "), *via;
    int channels, nvls;

    if (text == NULL)
        return;
    if (sscanf(text,
               "NCCL INFO %d coll channels, %*d collnet channels, %d nvls",
               &channels, &nvls) == 2) {
        links->channels = channels;
        links->nvls = nvls;
    }
    via = strstr(text, " via ");
    if (via != NULL && strncmp(text, "NCCL INFO Channel ", 18) == 0)
        add_way(links, via + 5);
}

void nccl_log_take(struct nccl_comm *c)
{
    struct nccl_world *w = c->world;
    char block[4097];
    ssize_t n;

    while (w->log >= 0 &&
           (n = pread(w->log, block, sizeof(block) - 1, w->log_at)) > 0) {
        char *line = block, *end;

        block[n] = '\0';
        while ((end = strchr(line, '\n')) != NULL) {
            *end = '\0';
            take_line(&c->links, line);
            line = end + 1;
        }
        if (line == block && n < (ssize_t)sizeof(block) - 1)
            return; /* the rest of the line comes later */
        w->log_at += line > block ? line - block : n;
    }
}

void nccl_describe(struct plait_comm *comm, char *text, size_t size)
{
    const struct nccl_links *l = &nccl_of(comm)->links;
    size_t used;

    nccl_log_take(nccl_of(comm));
    used = (size_t)snprintf(text, size, "%s", l->ways);
    if (l->channels > 0 && used < size)
        used += (size_t)snprintf(text + used, size - used, "%s%d channels",
                                 used > 0 ? ", " : "", l->channels);
    if (l->channels > 0 && l->nvls > 0 && used < size)
        snprintf(text + used, size - used, " (%d of NVLS)", l->nvls);
}
