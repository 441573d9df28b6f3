/* SPDX-License-Identifier: Apache-2.0 */
/* What training on a model of Hugging Face's changes without being asked. */
#include "config.h"

#include <jansson.h>
#include <stdio.h>

#include "runtime/checkpoint/hf_config.h"
#include "runtime/checkpoint/hf_read.h"
#include "runtime/checkpoint/hf_weights.h"

/* Which rates the model trains with, and whether config.json has others. */
static void note_rates(const json_t *root,
                       const struct plait_model_config *trained,
                       struct plait_hf_notes *notes)
{
    notes->rate = trained->dropout;
    notes->attention_rate = trained->attention_dropout;
    if (plait_hf_dropout_is(root, trained))
        return;
    plait_hf_dropout(root, notes->dropout, sizeof(notes->dropout));
    if (!notes->dropout[0])
        snprintf(notes->dropout, sizeof(notes->dropout), "none");
}

void plait_hf_notes_read(const char *dir,
                         const struct plait_model_config *trained,
                         struct plait_hf_notes *notes)
{
    struct plait_model_config told, read;
    struct plait_hf_weights *weights = NULL;
    struct plait_error why;
    char path[4200];
    json_t *root;

    *notes = (struct plait_hf_notes){.untied = false};
    snprintf(path, sizeof(path), "%s/config.json", dir);
    root = plait_hf_text_part(json_load_file(path, 0, NULL));
    if (root && plait_hf_config_read(dir, &told, &why) == 0) {
        note_rates(root, trained ? trained : &told, notes);
        if (told.tie_embeddings && plait_hf_model_read(dir, &read, &why) == 0)
            notes->untied = !read.tie_embeddings;
    }
    json_decref(root);
    notes->images = plait_hf_config_images(dir);
    notes->left_out = plait_hf_config_predicts(dir);
    if (notes->left_out)
        weights =
            plait_hf_weights_open(dir, !trained || trained->mtp_layers, &why);
    if (!weights || !plait_hf_weights_left_out(weights))
        notes->left_out = NULL;
    plait_hf_weights_close(weights);
}

void plait_hf_notes_print(const struct plait_hf_notes *notes, const char *mark,
                          FILE *out)
{
    if (notes->untied)
        fprintf(out,
                "%sconfig.json ties the head to the embedding, but "
                "lm_head.weight differs from it: the model keeps its own head "
                "(model.tie_embeddings: false)\n",
                mark);
    if (notes->left_out)
        fprintf(out,
                "%sconfig.json has layers of multi-token prediction (%s), "
                "which are left out (model.mtp_layers 0)\n",
                mark, notes->left_out);
    if (notes->images)
        fprintf(out,
                "%sconfig.json has an image model beside the text model; the "
                "image model is left out\n",
                mark);
    if (notes->dropout[0])
        fprintf(out,
                "%sconfig.json has dropout (%s), but the model trains with "
                "model.dropout %g and model.attention_dropout %g\n",
                mark, notes->dropout, notes->rate, notes->attention_rate);
    else if (notes->rate > 0 || notes->attention_rate > 0)
        fprintf(out,
                "%sthe model trains with dropout, as config.json says: "
                "model.dropout %g, model.attention_dropout %g\n",
                mark, notes->rate, notes->attention_rate);
}
