/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_TOKENIZER_SPM_PROTO_H
#define PLAIT_RUNTIME_DATA_TOKENIZER_SPM_PROTO_H

#include <stdbool.h>
#include <stddef.h>

/* What a SentencePiece model says (sentencepiece_model.proto), where the
 * library's interface does not tell it. */
struct plait_spm_piece {
    const char *text; /* in the model's bytes; not terminated */
    size_t size;
    float score; /* that of the highest is merged first */
    enum {
        PLAIT_SPM_NORMAL = 1,
        PLAIT_SPM_UNKNOWN,
        PLAIT_SPM_CONTROL,
        PLAIT_SPM_USER_DEFINED,
        PLAIT_SPM_UNUSED,
        PLAIT_SPM_BYTE
    } type;
};

struct plait_spm_proto {
    struct plait_spm_piece *pieces; /* by their ids */
    size_t npieces;
    bool is_bpe, falls_back;
    bool prepends; /* a blank begins every text */
    /* A text is changed before it is encoded, other than by blanks that become
     * U+2581 and that one in front. */
    bool normalizes;
};

/* Reads the bytes of a model, which must last as long as `p`. -1 with EINVAL
 * where they are none, or with ENOMEM. */
int plait_spm_proto_read(const char *bytes, size_t size,
                         struct plait_spm_proto *p);
void plait_spm_proto_clear(struct plait_spm_proto *p);

#endif
