/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/base/secret.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

int plait_secret_create(char *text, size_t size)
{
    unsigned char bytes[32];
    size_t n = (size - 1) / 2;

    if (n > sizeof(bytes)) {
        errno = EINVAL;
        return -1;
    }
    if (getrandom(bytes, n, 0) != (ssize_t)n)
        return -1;
    for (size_t i = 0; i < n; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
    return 0;
}
