/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_MANIFEST_IDENTITY_H
#define PLAIT_RUNTIME_CHECKPOINT_MANIFEST_IDENTITY_H

#include <jansson.h>
#include <stdbool.h>

#include "runtime/checkpoint/directory.h"

/* What a manifest says about its run, and its own checksum:
 * {..., "settings": {"model.heads": "12", ...},
 *  "data": {"bytes": 4711, "hash": "0123456789abcdef"},
 *  "checksum": "0badcafe"} */

/* Adds settings and data, if there are any, and a checksum of zeros, which must
 * stay last. -1: out of memory. */
int plait_manifest_add_identity(json_t *root, const struct plait_manifest *m);
/* Missing members are left as they are: the manifest is of an earlier version.
 * -1: they are malformed. */
int plait_manifest_parse_identity(const json_t *root, struct plait_manifest *m);

/* Write the checksum into the text of a whole manifest: zlib's CRC-32 of the
 * text with zeros in its place. */
void plait_manifest_seal(char *text, size_t size);
/* Whether the checksum is right; *sealed: whether there is one. */
bool plait_manifest_is_sealed(const char *text, size_t size, bool *sealed);

#endif
