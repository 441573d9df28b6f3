/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt's descriptors of products, matrices and preferences. */
#include <stdlib.h>
#include <string.h>

#include "blaslt.h"

extern int emu_products __attribute__((visibility("default")));

/* How many descriptors of products exist; test_runtime.c reads it. */
int emu_products;

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = calloc(1, sizeof(**handle));
    return *handle != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return 0;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS         ? "success"
           : status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported"
           : status == CUBLAS_STATUS_INVALID_VALUE ? "invalid value"
                                                   : "execution failed";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    (void)compute;
    (void)scale;
    *desc = calloc(1, sizeof(**desc));
    if (*desc == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    (*desc)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    emu_products++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    emu_products--;
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                               cublasLtMatmulDescAttributes_t attribute,
                               const void *value, size_t bytes)
{
    struct {
        cublasLtMatmulDescAttributes_t attribute;
        void *at;
        size_t bytes;
    } known[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &desc->op[0], sizeof(desc->op[0])},
        {CUBLASLT_MATMUL_DESC_TRANSB, &desc->op[1], sizeof(desc->op[1])},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &desc->epilogue,
         sizeof(desc->epilogue)},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &desc->bias, sizeof(desc->bias)},
        {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &desc->bias_type,
         sizeof(desc->bias_type)},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &desc->aux,
         sizeof(desc->aux)},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &desc->aux_ld,
         sizeof(desc->aux_ld)},
        {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &desc->fast, sizeof(desc->fast)},
        {CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &desc->sms, sizeof(desc->sms)},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &desc->scale[0],
         sizeof(desc->scale[0])},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &desc->scale[1],
         sizeof(desc->scale[1])},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].attribute != attribute || known[i].bytes != bytes)
            continue;
        memcpy(known[i].at, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout,
                                          cudaDataType_t type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    if (rows == 0 || cols == 0 || ld < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    *layout = malloc(sizeof(**layout));
    if (*layout == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    **layout = (struct emu_matrix){type, rows, cols, (size_t)ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *pref)
{
    *pref = calloc(1, sizeof(**pref));
    if (*pref == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    /* cuBLASLt's defaults */
    (*pref)->align = 256;
    (*pref)->reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref)
{
    free(pref);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t pref,
    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
    size_t bytes)
{
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
        bytes == sizeof(pref->workspace))
        memcpy(&pref->workspace, value, bytes);
    else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK &&
             bytes == sizeof(pref->reductions))
        memcpy(&pref->reductions, value, bytes);
    else if (attribute != CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
             bytes == sizeof(pref->align))
        memcpy(&pref->align, value, bytes);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}
