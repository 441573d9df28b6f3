/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/cli/run.h"

/* The messages between tasks of a step before they have a secret. An empty
 * field is written "-". */

static const char *print_field(const char *field)
{
    return *field ? field : "-";
}

static void read_field(char *field)
{
    if (strcmp(field, "-") == 0)
        *field = '\0';
}

/* Names and addresses of hosts. */
static int is_host(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789._-:%") == strlen(text);
}

void run_request_print(const char *jobid, int id, char *text, size_t size)
{
    snprintf(text, size, "plait node %.63s %d", jobid, id);
}

int run_brief_print(const struct run_brief *brief, const char *jobid,
                    char text[RUN_BRIEF_SIZE])
{
    int n = snprintf(text, RUN_BRIEF_SIZE, "plait plan %s %s %s %s %s", jobid,
                     print_field(brief->secret), print_field(brief->token),
                     print_field(brief->master), brief->code);

    return n < RUN_BRIEF_SIZE ? 0 : -1;
}

int run_brief_parse(const char *text, const char *jobid,
                    struct run_brief *brief)
{
    struct plait_error err;
    char id[64];
    int at = 0;

    if (sscanf(text, "plait plan %63s %64s %32s %255s %n", id, brief->secret,
               brief->token, brief->master, &at) != 4 ||
        !at || !text[at] || strcmp(id, jobid) != 0 || !is_host(brief->master))
        return -1;
    read_field(brief->secret);
    read_field(brief->token);
    read_field(brief->master);
    if (plait_launch_check_secret(brief->secret, &err) < 0 ||
        (*brief->token &&
         (strlen(brief->token) != RUN_TOKEN_SIZE - 1 ||
          strspn(brief->token, "0123456789abcdef") != RUN_TOKEN_SIZE - 1)))
        return -1;
    brief->code = text + at;
    return 0;
}

int run_chosen_print(const int *out, int nnodes, const char *master,
                     const char *code, char *text, size_t size)
{
    size_t used = 0;

    for (int id = 0; id < nnodes && used < size; id++)
        if (out[id])
            used += (size_t)snprintf(text + used, size - used, "%s%d",
                                     used ? "," : "", id);
    if (used >= size)
        return -1;
    used += (size_t)snprintf(text + used, size - used, "%s %s %s",
                             used ? "" : "-", print_field(master), code);
    return used < size ? 0 : -1;
}

int run_chosen_parse(const char *text, int id, struct run_chosen *chosen)
{
    char *end;
    int at = 0, before = -1;

    chosen->left_out = 0;
    chosen->id = id;
    text += *text == '-';
    while (*text >= '0' && *text <= '9') {
        long other = strtol(text, &end, 10);

        if (other <= before || other > 1048576)
            return -1;
        before = (int)other;
        chosen->left_out |= before == id;
        chosen->id -= before < id;
        text = end + (*end == ',');
    }
    if (sscanf(text, " %255s %n", chosen->master, &at) != 1 || !at ||
        !text[at] || !is_host(chosen->master))
        return -1;
    read_field(chosen->master);
    chosen->code = text + at;
    return 0;
}
