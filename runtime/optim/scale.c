/* SPDX-License-Identifier: Apache-2.0 */
/* The loss scale of fp16. */
#include "config.h"

#include "runtime/optim/optim.h"

/* As torch.cuda.amp.GradScaler: starts at 2^16 unless the configuration says
 * otherwise, doubles after 2000 steps without overflow, halves after an
 * overflow. */
#define FIRST_SCALE 65536.0
#define GROW_AFTER 2000
#define SCALE_MOST 0x1p40

void plait_loss_scale_init(struct plait_loss_scale *s,
                           const struct plait_train_config *config)
{
    s->dynamic = config->precision == PLAIT_FP16;
    s->scale = s->dynamic ? FIRST_SCALE : 1;
    if (s->dynamic && config->loss_scale > 0)
        s->scale = config->loss_scale;
    s->clean = 0;
    s->skipped = 0;
}

void plait_loss_scale_update(struct plait_loss_scale *s, bool overflow)
{
    if (!s->dynamic)
        return;
    if (overflow) {
        s->scale /= 2;
        s->clean = 0;
        s->skipped++;
    } else if (++s->clean == GROW_AFTER) {
        if (s->scale < SCALE_MOST)
            s->scale *= 2;
        s->clean = 0;
    }
}
