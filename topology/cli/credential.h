/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_CREDENTIAL_H
#define PLAIT_TOPOLOGY_CLI_CREDENTIAL_H

#include <stddef.h>

#include "topology/base/error.h"

/* Munge's credentials: an encrypted text that shows which user wrote it, and
 * that no other user can read. Munge's library is loaded when it is needed, so
 * that plait starts where it is not installed. */

/* Sizes of short texts, and of their credentials. */
enum { CREDENTIAL_TEXT = 256, CREDENTIAL_SIZE = 512 };

struct credentials;

/* `socket` is that of munged, "": munge's default. NULL, with the reason in
 * err. */
struct credentials *credentials_create(const char *socket,
                                       struct plait_error *err);
void credentials_destroy(struct credentials *credentials);

/* Encrypt `text` so that only this user can read it. */
int credentials_seal(struct credentials *credentials, const char *text,
                     char *credential, size_t size, struct plait_error *err);

/* Decrypt a credential of this user; with `again` also one that was read on
 * this machine before. */
int credentials_open(struct credentials *credentials, const char *credential,
                     int again, char *text, size_t size,
                     struct plait_error *err);

#endif
