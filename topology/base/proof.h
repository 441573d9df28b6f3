/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_PROOF_H
#define PLAIT_TOPOLOGY_BASE_PROOF_H

#include <stdbool.h>
#include <stddef.h>

/* Proofs that a process knows a step's secret, by which its processes tell each
 * other from foreign ones without sending the secret. */

/* HMAC-SHA-256 of a text by the secret. 0. */
enum { PLAIT_PROOF_SIZE = 32 };
int plait_proof_make(const char *secret, const unsigned char *text, size_t size,
                     unsigned char proof[PLAIT_PROOF_SIZE]);
/* Compares in constant time, which does not reveal where they differ. */
bool plait_proof_same(const unsigned char a[PLAIT_PROOF_SIZE],
                      const unsigned char b[PLAIT_PROOF_SIZE]);

#endif
