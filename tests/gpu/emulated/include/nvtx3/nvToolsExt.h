/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EMULATED_NVTX_H
#define EMULATED_NVTX_H

int nvtxRangePushA(const char *name);
int nvtxRangePop(void);

#endif
