/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fuzz.h"
#include "runtime/stuck/look.h"
#include "runtime/stuck/proof.h"
#include "runtime/stuck/wire.h"

/* The same bytes as what a process of another user wrote into its record. */
static void look(const uint8_t *data, size_t size)
{
    static struct plait_record record;
    static struct plait_stuck_rank rank;
    unsigned char bytes[PLAIT_STUCK_WIRE_MOST];
    struct plait_verdict verdict;
    char text[200];
    int n;

    memset(&record, 0, sizeof(record));
    memcpy(&record, data, size < sizeof(record) ? size : sizeof(record));
    plait_stuck_look(&record, &rank);
    n = plait_stuck_pack(&rank, bytes, sizeof(bytes));
    if (n < 0 || plait_stuck_unpack(bytes, (size_t)n, &rank) < 0 ||
        plait_stuck_judge(&rank, 1, &verdict) < 0)
        return;
    plait_stuck_sentence(&rank, 1, &verdict, 0, text, sizeof(text));
    if (strlen(text) >= sizeof(text) || strpbrk(text, "\n\033"))
        __builtin_trap();
}

/* What a node reports of its ranks when a run hangs. Accepted reports are
 * judged, and stay the same when they are passed on. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = 8 };
    static struct plait_stuck_rank rank[MOST], again;
    unsigned char bytes[PLAIT_STUCK_WIRE_MOST], twice[PLAIT_STUCK_WIRE_MOST];
    struct plait_stuck_proof proof;
    struct plait_verdict verdict;
    char text[200];
    int n = 0, used, length;

    look(data, size);
    while (n < MOST && (used = plait_stuck_unpack(data, size, &rank[n])) > 0) {
        data += used;
        size -= (size_t)used;
        length = plait_stuck_pack(&rank[n], bytes, sizeof(bytes));
        if (length < 0 ||
            plait_stuck_unpack(bytes, (size_t)length, &again) != length ||
            plait_stuck_pack(&again, twice, sizeof(twice)) != length ||
            memcmp(bytes, twice, (size_t)length) != 0)
            __builtin_trap();
        n++;
    }
    if (plait_stuck_judge(rank, n, &verdict) < 0)
        return 0;
    plait_stuck_sentence(rank, n, &verdict, 0, text, sizeof(text));
    if (strlen(text) >= sizeof(text) || strchr(text, '\n'))
        __builtin_trap();
    if (plait_stuck_prove(rank, n, &proof) == 0 && proof.n > n)
        __builtin_trap();
    plait_stuck_proof_clear(&proof);
    return 0;
}
