/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_XENT_H
#define PLAIT_KERNELS_XENT_H

#include "kernels/kernels.h"

/* Softmax cross-entropy of N rows, over a vocabulary or over the shard of it
 * that a rank has. A row whose target is negative is masked: it has no loss,
 * and its gradient is 0. */
struct plait_xent {
    enum plait_dtype type; /* T, of the logits */
    size_t N, stride;
    int32_t first, count;   /* columns 0 .. count-1 of the logits are the words
                             * first .. first+count-1 of the vocabulary, the
                             * others padding that takes no part */
    void *logits;           /* [N, stride] of T: in; xent and xent_backward
                             * overwrite them with their gradient */
    const int32_t *targets; /* in [N]: a word of the whole vocabulary */
    /* The next three: xent_stats out, xent_rescale and xent_backward in, not
     * used by xent. */
    float *max;    /* [N]: the largest logit of each row */
    float *sum;    /* [N]: sum exp(x - max); xent_rescale changes it */
    float *target; /* [N]: the target's logit */
    float scale;   /* xent and xent_backward: factor of the gradient */
    float cap;     /* xent and xent_backward: the gradient is that of what the
                    * logits were before softcap() with this s; 0: theirs */
    double *loss;  /* xent and xent_backward: +=, one number */
};

#endif
