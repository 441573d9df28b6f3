/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_FUZZ_FUZZ_H
#define PLAIT_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* What libFuzzer calls, and driver.c where there is no libFuzzer. A target
 * feeds the bytes to one reader and frees what it gets. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
