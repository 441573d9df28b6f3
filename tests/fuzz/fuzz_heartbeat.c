/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fuzz.h"
#include "runtime/stuck/beat.h"

/* Messages between nodes during a run: an accepted message stays the same when
 * it is passed on, and never makes a node's last sign of life later than
 * now. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { NODES = 5 };
    unsigned char bytes[PLAIT_BEAT_MOST], body[2 * NODES];
    struct plait_stuck_rank rank;
    struct plait_beat beat, again;
    struct plait_beat_table t;
    int length;

    if (plait_beat_unpack(data, size, &beat) < 0)
        return 0;
    length = plait_beat_pack(&beat, bytes, sizeof(bytes));
    if (length != (int)size || memcmp(bytes, data, size) != 0 ||
        plait_beat_unpack(bytes, size, &again) < 0 || again.kind != beat.kind)
        __builtin_trap();
    if (plait_beat_table_init(&t, NODES, 0, 100) == 0 &&
        plait_beat_table_take(&t, &beat, 130))
        plait_beat_table_tell(&t, 0, NODES, 131, body);
    for (int i = 0; t.heard && i < NODES; i++)
        if (t.heard[i] < 100 || t.heard[i] > 130)
            __builtin_trap();
    plait_beat_table_clear(&t);
    if (beat.kind == PLAIT_BEAT_RANK)
        plait_stuck_unpack(beat.body, beat.size, &rank);
    return 0;
}
