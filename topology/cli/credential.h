/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_CREDENTIAL_H
#define PLAIT_TOPOLOGY_CLI_CREDENTIAL_H

#include <stddef.h>

#include "topology/base/error.h"

/* Munge's credentials: a text that says which user wrote it, and that no other
 * user can read. Its library is looked for when it is needed, so that plait
 * starts where it is not installed. */

/* Of short ones: the text, and the credential. */
enum { CREDENTIAL_TEXT = 256, CREDENTIAL_SIZE = 512 };

struct credentials;

/* `socket` is munged's, "": munge's own. NULL, with the reason in err. */
struct credentials *credentials_create(const char *socket,
                                       struct plait_error *err);
void credentials_destroy(struct credentials *credentials);

/* Write `text` so that this user alone can read it. */
int credentials_seal(struct credentials *credentials, const char *text,
                     char *credential, size_t size, struct plait_error *err);

/* Read what this user wrote, with `again` also what was read on this machine
 * before. */
int credentials_open(struct credentials *credentials, const char *credential,
                     int again, char *text, size_t size,
                     struct plait_error *err);

#endif
