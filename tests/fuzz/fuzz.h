/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_FUZZ_FUZZ_H
#define PLAIT_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Called by libFuzzer or, without it, by driver.c. A target passes the bytes to
 * one reader and frees the result. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
