/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#include <assert.h>

#include "kernels/queue.h"

const char *plait_dtype_name(enum plait_dtype type)
{
    static const char *const name[PLAIT_NDTYPES] = {"fp32", "bf16", "fp16",
                                                    "int32", "fp64"};

    assert(type < PLAIT_NDTYPES);
    return name[type];
}

const char *plait_queue_error(const struct plait_queue *q)
{
    const struct plait_queue_head *head = (const void *)q;

    return head->failed != 0 ? head->error : NULL;
}

const char *plait_queue_remark(const struct plait_queue *q)
{
    const struct plait_queue_head *head = (const void *)q;

    return head->note[0] != '\0' ? head->note : NULL;
}
