/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_TYPES_H
#define PLAIT_KERNELS_TYPES_H

#include <stddef.h>

/* The types of elements, and what is known of a GPU: all that half of the tree
 * asks the kernels for. It is apart from kernels.h so that a new operation does
 * not compile that half again. */

#ifdef __cplusplus
extern "C" {
#endif

enum plait_dtype {
    PLAIT_F32,
    PLAIT_BF16_T,
    PLAIT_FP16_T,
    PLAIT_I32,
    PLAIT_F64, /* only for transfers: no op takes it */
    PLAIT_NDTYPES
};

/* Bytes of one element. Inline because the CUDA module must not need symbols of
 * the program. */
static inline size_t plait_dtype_size(enum plait_dtype type)
{
    return type == PLAIT_F64                        ? 8
           : type == PLAIT_F32 || type == PLAIT_I32 ? 4
                                                    : 2;
}

const char *plait_dtype_name(enum plait_dtype type); /* "fp32", "bf16", .. */

/* What is known of a GPU. */
struct plait_gpu_facts {
    char name[96];
    char busid[16];      /* "0000:07:00.0" */
    int capability;      /* 89: 8.9 */
    int processors;      /* streaming multiprocessors */
    size_t memory;       /* bytes */
    int driver, api;     /* CUDA's versions, 12040: 12.4 */
    char attention[240]; /* which code computes it in 16 bits: "cuDNN 9.19.0",
                          * or "own kernels", with the reason if there is one */
};

#ifdef __cplusplus
}
#endif
#endif
