/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/bootstrap/proof.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <string.h>

int plait_proof_make(const char *secret, const unsigned char *text, size_t size,
                     unsigned char proof[PLAIT_PROOF_SIZE])
{
    if (HMAC(EVP_sha256(), secret, (int)strlen(secret), text, size, proof,
             NULL))
        return 0;
    errno = ENOSYS;
    return -1;
}

bool plait_proof_same(const unsigned char a[PLAIT_PROOF_SIZE],
                      const unsigned char b[PLAIT_PROOF_SIZE])
{
    return CRYPTO_memcmp(a, b, PLAIT_PROOF_SIZE) == 0;
}
