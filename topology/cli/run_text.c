/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/hash.h"
#include "topology/cli/run.h"
#include "topology/start/port.h"

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
static bool is_host(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789._-:%") == strlen(text);
}

static bool is_token(const char *text)
{
    return strlen(text) == RUN_TOKEN_SIZE - 1 &&
           strspn(text, "0123456789abcdef") == RUN_TOKEN_SIZE - 1;
}

static bool is_port(int port)
{
    return port >= 0 && port < 65536;
}

void run_request_print(const struct run_request *request, const char *jobid,
                       int id, char *text, size_t size)
{
    snprintf(text, size, "plait node %.63s %d %d %s", jobid, id, request->port,
             request->token);
}

int run_request_parse(const char *text, const char *jobid, int id,
                      struct run_request *request)
{
    char of[64];
    int node, at = 0;

    return sscanf(text, "plait node %63s %9d %9d %32s%n", of, &node,
                  &request->port, request->token, &at) == 4 &&
                   at && !text[at] && strcmp(of, jobid) == 0 && node == id &&
                   is_port(request->port) && is_token(request->token)
               ? 0
               : -1;
}

/* Any user can compute these ports, and there is no channel besides by which a
 * step's tasks could tell each other another one: Slurm's comments and names
 * are the user's, PMIx is not everywhere. But a host proves itself by munge and
 * a member tries all ports at once, so that a taken one costs nothing: who
 * wants to keep a step from starting must listen at all of them, on the step's
 * first node. They are spread over all of our ports, whose number is prime,
 * from a start and by a step of their own: the ports of two steps are hardly
 * ever the same, nor those next to the MASTER_PORTs that steps begin with. */
void run_list_ports(unsigned job, unsigned step, int ports[RUN_PORTS])
{
    unsigned text[3] = {job, step, 0x706c6169};
    uint64_t hash = plait_hash_bytes(PLAIT_HASH_START, text, sizeof(text));
    uint64_t at = hash >> 32, stride = 1 + hash % (PLAIT_PORTS - 1);

    for (int i = 0; i < RUN_PORTS; i++, at += stride)
        ports[i] = PLAIT_PORT_FIRST + (int)(at % PLAIT_PORTS);
}

int run_brief_print(const struct run_brief *brief, const char *jobid,
                    char text[RUN_BRIEF_SIZE])
{
    int n =
        snprintf(text, RUN_BRIEF_SIZE, "plait plan %s %s %s %s %d %s", jobid,
                 print_field(brief->secret), print_field(brief->token),
                 print_field(brief->master), brief->port, brief->code);

    return n < RUN_BRIEF_SIZE ? 0 : -1;
}

int run_brief_parse(const char *text, const char *jobid,
                    struct run_brief *brief)
{
    struct plait_error err;
    char id[64];
    int at = 0;

    if (sscanf(text, "plait plan %63s %64s %32s %255s %9d %n", id,
               brief->secret, brief->token, brief->master, &brief->port,
               &at) != 5 ||
        !at || !text[at] || strcmp(id, jobid) != 0 || !is_host(brief->master) ||
        !is_port(brief->port))
        return -1;
    read_field(brief->secret);
    read_field(brief->token);
    read_field(brief->master);
    if (plait_launch_check_secret(brief->secret, &err) < 0 ||
        (*brief->token && !is_token(brief->token)))
        return -1;
    brief->code = text + at;
    return 0;
}

int run_chosen_print(const int *out, int nnodes, const char *master, int port,
                     const char *code, char *text, size_t size)
{
    size_t used = 0;

    for (int id = 0; id < nnodes && used < size; id++)
        if (out[id])
            used += (size_t)snprintf(text + used, size - used, "%s%d",
                                     used ? "," : "", id);
    if (used >= size)
        return -1;
    used += (size_t)snprintf(text + used, size - used, "%s %s %d %s",
                             used ? "" : "-", print_field(master), port, code);
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
    if (sscanf(text, " %255s %9d %n", chosen->master, &chosen->port, &at) !=
            2 ||
        !at || !text[at] || !is_host(chosen->master) || !is_port(chosen->port))
        return -1;
    read_field(chosen->master);
    chosen->code = text + at;
    return 0;
}
