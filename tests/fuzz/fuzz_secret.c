/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "topology/base/hostlist.h"
#include "topology/cli/run.h"
#include "topology/start/meeting.h"
#include "topology/start/scontrol.h"

/* What plait run reads before it knows the secret: the first line of any
 * connection to RANK 0, the contents of a credential of the same user, the name
 * of Slurm's socket, and mpirun's list of nodes. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char token[65], socket[64];
    struct run_chosen chosen;
    struct run_brief brief;
    char *text = malloc(size + 1);
    const char *rest;
    char **names;
    int index, n = 0;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (plait_meeting_parse(text, token, &index, &rest) == 0 &&
        (index < 0 || rest < text || rest > text + strlen(text) ||
         strlen(token) >= sizeof(token)))
        __builtin_trap();
    if (run_brief_parse(text, "7.0", &brief) == 0 &&
        ((*brief.secret && strlen(brief.secret) < 32) ||
         (*brief.token && strlen(brief.token) != RUN_TOKEN_SIZE - 1) ||
         brief.code < text || !*brief.code))
        __builtin_trap();
    if (run_chosen_parse(text, 3, &chosen) == 0 &&
        (chosen.id < 0 || chosen.id > 3 || chosen.code < text || !*chosen.code))
        __builtin_trap();
    if (plait_scontrol_parse_munge(text, socket, sizeof(socket), NULL) >= 0 &&
        !memchr(socket, '\0', sizeof(socket)))
        __builtin_trap();
    names = run_mpirun_parse(text, &n);
    plait_hostlist_destroy(names, n);
    free(text);
    return 0;
}
