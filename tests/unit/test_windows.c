/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "model_run.h"

/* Which tokens a layer reads, and whether it knows where they stand: sliding
 * windows and layers without rotary positions. */

enum { LENGTH = 16, LAYERS = 3 };

/* The loss of the last token alone. */
static double last_loss(const struct plait_job_config *config,
                        const int32_t *tokens, const int32_t *starts)
{
    int32_t targets[LENGTH];
    const struct plait_batch b = {.batch = 1,
                                  .seq_len = LENGTH,
                                  .tokens = tokens,
                                  .targets = targets,
                                  .starts = starts,
                                  .loss_scale = 1};
    struct run r = {0};
    double loss;

    for (int i = 0; i < LENGTH; i++)
        targets[i] = i == LENGTH - 1 ? 77 : -1;
    place(&r.mesh, 1, 0, 1, 0);
    open_device(&r, plait_ops_cpu());
    open_model(&r, config, 1);
    if (plait_model_forward(
            r.model, &(struct plait_forward){.batch = &b, .loss = r.loss}) < 0)
        give_up("forward", NULL);
    loss = take_loss(&r);
    close_run(&r);
    return loss;
}

static struct plait_job_config make_config(int layers)
{
    struct plait_job_config config;

    small_config(&config, PLAIT_LLAMA);
    config.model.seq_len = LENGTH;
    config.model.layers = layers;
    config.train.micro_batch = 1;
    return config;
}

/* The first token that the last one's loss depends on. */
static int first_read(const struct plait_job_config *config,
                      const int32_t *starts)
{
    int32_t tokens[LENGTH];
    double before;
    int at = 0;

    for (int i = 0; i < LENGTH; i++)
        tokens[i] = (37 * i + 11) % 200;
    before = last_loss(config, tokens, starts);
    while (at < LENGTH) {
        tokens[at] += 50;
        if (last_loss(config, tokens, starts) != before)
            break;
        tokens[at++] -= 50;
    }
    return at;
}

static void test_reach(void)
{
    struct plait_job_config config = make_config(LAYERS);
    struct plait_model_config *m = &config.model;
    int32_t starts[LENGTH];

    ok(first_read(&config, NULL) == 0, "without a window all tokens are read");
    m->sliding_window = LENGTH;
    ok(first_read(&config, NULL) == 0, "nor with one of the whole sequence");
    m->sliding_window = 4;
    ok(first_read(&config, NULL) == LENGTH - 1 - LAYERS * 3,
       "a window of 4: 3 more tokens in each layer, from %d on",
       first_read(&config, NULL));
    m->full_attention_every = 3;
    ok(first_read(&config, NULL) == 0, "the third layer reads all");
    m->full_attention_every = 4;
    ok(first_read(&config, NULL) == LENGTH - 1 - LAYERS * 3,
       "the fourth would");
    m->full_attention_first = 1;
    ok(first_read(&config, NULL) == 0, "so does the first layer");
    m->full_attention_first = m->full_attention_every = 0;
    config.data.mask_documents = true;
    for (int i = 0; i < LENGTH; i++)
        starts[i] = i < 12 ? 0 : 12;
    ok(first_read(&config, starts) == 12, "a window ends with its document");
    for (int i = 0; i < LENGTH; i++)
        starts[i] = i < 2 ? 0 : 2;
    ok(first_read(&config, starts) == LENGTH - 1 - LAYERS * 3,
       "and is no longer in a long one");
}

/* What one layer makes of its tokens, if two of them change places. */
static void test_positions(void)
{
    struct plait_job_config config = make_config(1);
    int32_t here[LENGTH], there[LENGTH];
    double with, without;

    for (int i = 0; i < LENGTH; i++)
        here[i] = there[i] = (37 * i + 11) % 200;
    there[3] = here[9];
    there[9] = here[3];
    with =
        fabs(last_loss(&config, here, NULL) - last_loss(&config, there, NULL));
    config.model.no_rope_every = 1;
    without =
        fabs(last_loss(&config, here, NULL) - last_loss(&config, there, NULL));
    ok(with > 1e-3 && without < 1e-5,
       "without positions the order makes no difference (%g, with them %g)",
       without, with);
    config.model.no_rope_every = 2;
    ok(fabs(last_loss(&config, here, NULL) - last_loss(&config, there, NULL)) ==
           with,
       "the first of every two layers has them");
}

int main(void)
{
    test_reach();
    test_positions();
    return done_testing();
}
