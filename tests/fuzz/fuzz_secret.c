/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "topology/base/hostlist.h"
#include "topology/cli/run.h"
#include "topology/start/meeting_here.h"
#include "topology/start/meeting_line.h"
#include "topology/start/scontrol.h"

/* What plait run reads before it knows the secret: the lines of a meeting's
 * guests and of what poses as its host, the contents of a credential of the
 * same user, the system's list of sockets, the name of Slurm's socket, and
 * mpirun's list of nodes. */

static void read_lines(const char *text)
{
    char nonce[PLAIT_MEETING_NONCE], proof[PLAIT_MEETING_PROOF], token[65];
    char name[PLAIT_MEETING_HERE + 17];
    const char *rest, *end = text + strlen(text);
    struct plait_meeting_talk talk;
    int index;

    if (plait_meeting_parse_hello(text, nonce) == 0 &&
        strlen(nonce) != PLAIT_MEETING_NONCE - 1)
        __builtin_trap();
    if (plait_meeting_parse_member(text, &talk, proof, &rest) == 0 &&
        (talk.index < 0 || rest < text || rest > end ||
         strlen(talk.member) != PLAIT_MEETING_NONCE - 1 ||
         strlen(proof) != PLAIT_MEETING_PROOF - 1))
        __builtin_trap();
    if (plait_meeting_parse_host(text, "answer", proof, &rest) == 0 &&
        (rest < text || rest > end || strlen(proof) != PLAIT_MEETING_PROOF - 1))
        __builtin_trap();
    if (plait_meeting_parse_old(text, token, &index) == 0 &&
        (index < 0 || strlen(token) >= sizeof(token)))
        __builtin_trap();
    if (plait_meeting_parse_socket(text, "plait-run-0-7.0-0", name) == 0 &&
        strlen(name) != strlen("plait-run-0-7.0-0") + 17)
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char socket[64];
    struct run_request request;
    struct run_chosen chosen;
    struct run_brief brief;
    char *text = malloc(size + 1);
    char **names;
    int n = 0;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    read_lines(text);
    if (run_request_parse(text, "7.0", 3, &request) == 0 &&
        (request.port < 0 || request.port > 65535 ||
         strlen(request.token) != RUN_TOKEN_SIZE - 1))
        __builtin_trap();
    if (run_brief_parse(text, "7.0", &brief) == 0 &&
        ((*brief.secret && strlen(brief.secret) < 32) ||
         (*brief.token && strlen(brief.token) != RUN_TOKEN_SIZE - 1) ||
         brief.port < 0 || brief.port > 65535 || brief.code < text ||
         !*brief.code))
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
