/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/hostlist.h"
#include "topology/cli/run.h"

/* Open MPI's mpirun starts a daemon on each node, and passes the nodes of all
 * daemons to them and their processes: its own node first. */

enum { LIST_MOST = 65536 };

struct list {
    char *text;
    size_t used;
};

static void add_text(struct list *list, const char *text, size_t n)
{
    if (list->used + n >= LIST_MOST)
        n = LIST_MOST - 1 - list->used;
    memcpy(list->text + list->used, text, n);
    list->used += n;
    list->text[list->used] = '\0';
}

/* "3:1-16,20]", the width first: "001-016,020]". What follows it, or NULL. */
static const char *convert_bracket(const char *at, struct list *list)
{
    int width, n = 0;

    if (sscanf(at, "%2d:%n", &width, &n) != 1 || !n || width < 1)
        return NULL;
    for (at += n; *at && *at != ']';) {
        int digits = (int)strspn(at, "0123456789");

        if (digits > width)
            return NULL;
        for (int i = digits; digits && i < width; i++)
            add_text(list, "0", 1);
        add_text(list, at, digits ? (size_t)digits : 1);
        at += digits ? digits : 1;
    }
    add_text(list, "]", 1);
    return *at ? at + 1 : NULL;
}

char **run_mpirun_parse(const char *text, int *n)
{
    struct list list = {calloc(1, LIST_MOST), 0};
    char **names = NULL;
    struct plait_error err;

    while (list.text && text && *text && *text != '@') {
        size_t plain = strcspn(text, "[@");

        add_text(&list, text, plain);
        text += plain;
        if (*text == '[') {
            add_text(&list, "[", 1);
            text = convert_bracket(text + 1, &list);
        }
    }
    if (list.text && text && list.used && list.used < LIST_MOST - 1)
        names = plait_hostlist_create(list.text, n, &err);
    free(list.text);
    return names;
}

char **run_mpirun_nodes(int *n, int *own)
{
    const char *regex = getenv("OMPI_MCA_orte_node_regex"),
               *daemon = getenv("OMPI_MCA_orte_local_daemon_uri");
    char **names, host[256] = "";
    struct plait_error err;

    if (!daemon || sscanf(daemon, "%*u.%7d;", own) != 1)
        return NULL;
    /* On its own node mpirun passes none. */
    gethostname(host, sizeof(host) - 1);
    names = regex       ? run_mpirun_parse(regex, n)
            : *own == 0 ? plait_hostlist_create(host, n, &err)
                        : NULL;
    if (names && (*own < 0 || *own >= *n)) {
        plait_hostlist_destroy(names, *n);
        return NULL;
    }
    return names;
}
