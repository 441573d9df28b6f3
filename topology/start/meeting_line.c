/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/start/meeting_line.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "topology/base/proof.h"
#include "topology/base/secret.h"
#include "topology/base/sha256.h"

static void print_hex(const unsigned char bytes[PLAIT_PROOF_SIZE],
                      char text[PLAIT_MEETING_PROOF])
{
    for (int i = 0; i < PLAIT_PROOF_SIZE; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
}

static bool is_hex(const char *text, size_t digits)
{
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

int plait_meeting_nonce(char nonce[PLAIT_MEETING_NONCE])
{
    return plait_secret_create(nonce, PLAIT_MEETING_NONCE);
}

/* What is signed contains the hash of the text and not the text, so that no
 * text can imitate another part of it. */
void plait_meeting_prove(const char *token, const char *role,
                         const struct plait_meeting_talk *talk,
                         const char *text, char proof[PLAIT_MEETING_PROOF])
{
    unsigned char digest[PLAIT_SHA256_SIZE], made[PLAIT_PROOF_SIZE];
    char all[2 * PLAIT_MEETING_NONCE + PLAIT_MEETING_PROOF + 64];
    char sum[PLAIT_MEETING_PROOF];
    struct plait_sha256 hash;
    int n;

    plait_sha256_begin(&hash);
    plait_sha256_add(&hash, text, strlen(text));
    plait_sha256_end(&hash, digest);
    print_hex(digest, sum);
    n = snprintf(all, sizeof(all), "plait-meeting %d %.7s %.32s %.32s %d %s",
                 PLAIT_MEETING_VERSION, role, talk->host, talk->member,
                 talk->index, sum);
    plait_proof_make(token, (const unsigned char *)all, (size_t)n, made);
    print_hex(made, proof);
}

bool plait_meeting_same(const char a[PLAIT_MEETING_PROOF],
                        const char b[PLAIT_MEETING_PROOF])
{
    const unsigned char *x = (const unsigned char *)a,
                        *y = (const unsigned char *)b;

    return plait_proof_same(x, y) &
           plait_proof_same(x + PLAIT_PROOF_SIZE, y + PLAIT_PROOF_SIZE);
}

int plait_meeting_parse_hello(const char *line, char nonce[PLAIT_MEETING_NONCE])
{
    int version, at = 0;

    return sscanf(line, "plait-meeting %9d %32s%n", &version, nonce, &at) ==
                       2 &&
                   version == PLAIT_MEETING_VERSION && at && !line[at] &&
                   is_hex(nonce, PLAIT_MEETING_NONCE - 1)
               ? 0
               : -1;
}

/* What a member sends; *rest is what stands behind the proof. */
static int parse_member(const char *line, const char *role,
                        struct plait_meeting_talk *talk,
                        char proof[PLAIT_MEETING_PROOF], const char **rest)
{
    size_t word = strlen(role);
    int at = 0;

    if (strncmp(line, role, word) != 0 || line[word] != ' ' ||
        sscanf(line + word, " %9d %32s %64s%n", &talk->index, talk->member,
               proof, &at) != 3 ||
        !at || talk->index < 0 ||
        !is_hex(talk->member, PLAIT_MEETING_NONCE - 1) ||
        !is_hex(proof, PLAIT_MEETING_PROOF - 1))
        return -1;
    *rest = line + word + at;
    return 0;
}

int plait_meeting_parse_member(const char *line,
                               struct plait_meeting_talk *talk,
                               char proof[PLAIT_MEETING_PROOF],
                               const char **text)
{
    if (parse_member(line, "member", talk, proof, text) < 0)
        return -1;
    return *(*text)++ == ' ' ? 0 : -1;
}

int plait_meeting_parse_left(const char *line, struct plait_meeting_talk *talk,
                             char proof[PLAIT_MEETING_PROOF])
{
    const char *rest;

    return parse_member(line, "left", talk, proof, &rest) == 0 && !*rest ? 0
                                                                         : -1;
}

int plait_meeting_parse_host(const char *line, const char *role,
                             char proof[PLAIT_MEETING_PROOF], const char **text)
{
    size_t word = strlen(role);
    int at = 0;

    if (strncmp(line, role, word) != 0 || line[word] != ' ' ||
        sscanf(line + word + 1, "%64s%n", proof, &at) != 1 ||
        !is_hex(proof, PLAIT_MEETING_PROOF - 1))
        return -1;
    *text = line + word + 1 + at;
    if (!**text)
        return 0;
    return *(*text)++ == ' ' ? 0 : -1;
}

int plait_meeting_parse_old(const char *line, char token[65], int *index)
{
    int at = 0;

    return sscanf(line, "plait %64s %9d %n", token, index, &at) == 2 && at &&
                   *index >= 0
               ? 0
               : -1;
}
