/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EMULATED_CUDA_FP8_H
#define EMULATED_CUDA_FP8_H

#include "kernels/dtype.h"

enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
typedef unsigned char __nv_fp8_storage_t;

static inline __nv_fp8_storage_t
__nv_cvt_float_to_fp8(float x, __nv_saturation_t,
                      __nv_fp8_interpretation_t format)
{
    return plait_fp8_of_f32(x, format == __NV_E4M3 ? PLAIT_E4M3 : PLAIT_E5M2);
}

#endif
