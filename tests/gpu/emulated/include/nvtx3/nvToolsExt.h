/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EMULATED_NVTX_H
#define EMULATED_NVTX_H

static inline int nvtxRangePushA(const char *name)
{
    return name != 0;
}

static inline int nvtxRangePop(void)
{
    return 0;
}

#endif
