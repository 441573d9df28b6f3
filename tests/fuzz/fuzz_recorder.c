/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "fuzz.h"
#include "runtime/stuck/recorder.h"

/* A dump of torch's flight recorder, read as the dumps of two ranks of four. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plait_recorder r = {0};
    struct plait_verdict verdict;
    struct plait_error err;
    char text[200];

    if (plait_recorder_add(&r, "fuzz", data, size, 2, 1.8e9, &err) == 0 &&
        plait_recorder_add(&r, "fuzz", data, size, 0, 1.8e9, &err) == 0 &&
        plait_recorder_close(&r) == 0 &&
        plait_stuck_judge(r.rank, r.n, &verdict) == 0)
        plait_stuck_sentence(r.rank, r.n, &verdict, 0, text, sizeof(text));
    plait_recorder_clear(&r);
    return 0;
}
