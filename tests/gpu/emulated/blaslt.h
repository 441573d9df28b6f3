/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_BLASLT_H
#define PLAIT_TESTS_GPU_EMULATED_BLASLT_H

#include <cublasLt.h>

/* What cuBLASLt's handles stand for. */

struct emu_blas {
    int unused;
};

struct emu_matrix {
    cudaDataType_t type;
    size_t rows, cols, ld;
};

struct emu_preference {
    uint64_t workspace;
    uint32_t align;
};

struct emu_product {
    cublasOperation_t op[2];
    cublasLtEpilogue_t epilogue;
    const void *bias;
    void *aux;
    int64_t aux_ld;
    const float *scale[2];
    cudaDataType_t bias_type;
};

/* What an algorithm holds: the alignment that it wants, its number. */
enum { ALGO_ALIGN, ALGO_NUMBER };

/* Notes that a product was made so: choices.c. add: to what D has. */
void emu_chosen(const struct emu_product *how, const struct emu_matrix *a,
                const struct emu_matrix *d, int add, int algorithm);

#endif
