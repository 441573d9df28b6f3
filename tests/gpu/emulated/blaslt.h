/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_BLASLT_H
#define PLAIT_TESTS_GPU_EMULATED_BLASLT_H

#include <cublasLt.h>

/* The objects behind cuBLASLt's handles. */

struct emu_blas {
    int unused;
};

struct emu_matrix {
    cudaDataType_t type;
    size_t rows, cols, ld;
};

struct emu_preference {
    uint64_t workspace;
    uint32_t align, reductions;
};

struct emu_product {
    cublasOperation_t op[2];
    cublasLtEpilogue_t epilogue;
    const void *bias;
    void *aux;
    int64_t aux_ld;
    const float *scale[2];
    cudaDataType_t bias_type;
    int8_t fast; /* sums of fp8 products in fewer bits */
    int32_t sms; /* multiprocessors it is made for; 0: all */
};

/* Where an algorithm keeps the alignment that it needs, and its number. */
enum { ALGO_ALIGN, ALGO_NUMBER };

/* Notes which algorithm a product took, for choices.c. add: beta is not 0. */
void emu_chosen(const struct emu_product *how, const struct emu_matrix *a,
                const struct emu_matrix *d, int add, int algorithm);

#endif
