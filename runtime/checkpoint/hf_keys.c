/* SPDX-License-Identifier: Apache-2.0 */
/* Every key of a config.json that may stand there, and why it may. */
#include "config.h"

#include "runtime/checkpoint/hf_read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Why a key does not change what plait-train makes of the model. */
enum reason {
    READ,     /* it does: hf_config.c or hf_rope.c reads or checks it */
    TOKENS,   /* ids and texts of tokens, for generation */
    GENERATE, /* how text is generated, once in this file */
    TASK,     /* heads for other tasks, whose weights would be refused */
    FORM,     /* the form of the files, or how they came to be */
    RUN,      /* how a model is run, with the same result but for rounding */
    FIRST,    /* the first weights of a new model */
    TRAIN,    /* the loss and the noise of training: keys of plait.yaml */
    UNREAD,   /* the model of this type does not read it */
    DROPOUT,  /* hf_dropout.c reads it */
};

enum types {
    GPT2 = 1,
    LLAMA = 2,
    PHI3 = 4,
    GRANITE = 8,
    GEMMA = 16,
    GEMMA2 = 32, /* and Gemma 3 */
    GEMMA3 = 64,
    GLM = 128,
    OSS = 256,
    LATENT = 512,
    LLAMA4 = 1024,
    IMAGES = 2048, /* a llama4, beside its text_config */
    LITE = 4096,   /* glm4_moe_lite, a LATENT, too */
    MINIMAX = 8192,
    EXAONE = 16384,
    SEED = 32768,
    SIGMOID = GLM | LATENT,
    BOTH = GPT2 | LLAMA | IMAGES
};

static const struct key {
    const char *name;
    unsigned char reason;
    unsigned short types;
} keys[] = {
    /* sizes */
    {"model_type", READ, BOTH},
    {"vocab_size", READ, BOTH},
    {"n_layer", READ, GPT2},
    {"n_embd", READ, GPT2},
    {"n_head", READ, GPT2},
    {"n_inner", READ, GPT2},
    {"n_positions", READ, GPT2},
    {"n_ctx", FORM, GPT2},     /* n_positions once more */
    {"n_special", FORM, GPT2}, /* of GPT-1, as is the next */
    {"predict_special_tokens", FORM, GPT2},
    {"num_hidden_layers", READ, LLAMA},
    {"hidden_size", READ, LLAMA},
    {"num_attention_heads", READ, LLAMA},
    {"num_key_value_heads", READ, LLAMA},
    {"head_dim", READ, LLAMA},
    {"intermediate_size", READ, LLAMA},
    {"max_position_embeddings", READ, LLAMA},
    /* of positions that are stretched, which hf_rope.c refuses */
    {"original_max_position_embeddings", READ, PHI3},
    {"max_sequence_length", FORM, LLAMA}, /* of Llama 1, the same once more */
    {"num_local_experts", READ, LLAMA},
    {"num_experts_per_tok", READ, LLAMA},
    {"num_experts", READ, LLAMA},
    {"moe_intermediate_size", READ, LLAMA},
    {"norm_topk_prob", READ, LLAMA},
    {"decoder_sparse_step", READ, LLAMA},
    {"mlp_only_layers", READ, LLAMA},
    {"n_routed_experts", READ, SIGMOID},
    {"n_shared_experts", READ, SIGMOID},
    {"first_k_dense_replace", READ, SIGMOID},
    {"n_group", READ, SIGMOID},
    {"topk_group", READ, SIGMOID},
    {"routed_scaling_factor", READ, SIGMOID},
    {"mlp_layer_types", READ, LITE},
    {"use_qk_norm", READ, GLM | LLAMA4 | MINIMAX},
    {"intermediate_size_mlp", READ, LLAMA4},
    {"interleave_moe_layer_step", READ, LLAMA4},
    {"moe_layers", READ, LLAMA4},
    {"attention_chunk_size", READ, LLAMA4},
    {"attn_temperature_tuning", READ, LLAMA4},
    {"floor_scale", READ, LLAMA4},
    {"attn_scale", READ, LLAMA4},
    {"for_llm_compression", FORM, LLAMA4},
    /* layers of multi-token prediction; two names of one number */
    {"num_nextn_predict_layers", READ, SIGMOID},
    {"num_mtp_layers", READ, SIGMOID},
    {"q_lora_rank", READ, LATENT},
    {"kv_lora_rank", READ, LATENT},
    {"qk_nope_head_dim", READ, LATENT},
    {"qk_rope_head_dim", READ, LATENT},
    {"v_head_dim", READ, LATENT},
    {"qk_head_dim", FORM, LATENT}, /* the sum of two of them */
    {"scoring_func", READ, LATENT | MINIMAX},
    {"use_routing_bias", READ, MINIMAX},
    {"qk_norm_type", READ, MINIMAX},
    {"shared_intermediate_size", READ, MINIMAX},
    {"rotary_dim", READ, MINIMAX},
    {"attn_type_list", READ, MINIMAX},
    {"layernorm_full_attention_beta", READ, MINIMAX},
    {"layernorm_linear_attention_beta", UNREAD, MINIMAX}, /* no layer's */
    {"layernorm_mlp_beta", READ, MINIMAX},
    {"mlp_intermediate_size", UNREAD, MINIMAX},
    /* of multi-token prediction, whose weights its files do not have */
    {"use_mtp", UNREAD, MINIMAX},
    {"num_mtp_modules", UNREAD, MINIMAX},
    {"mtp_transformer_layers", UNREAD, MINIMAX},
    {"topk_method", READ, LATENT},
    {"moe_layer_freq", READ, LATENT},
    {"ep_size", RUN, LATENT},
    {"aux_loss_alpha", TRAIN, LATENT},
    {"seq_aux", TRAIN, LATENT},
    {"swiglu_limit", READ, OSS},
    {"swiglu_alpha", READ, OSS},
    {"experts_per_token", FORM, OSS},      /* num_experts_per_tok once more */
    {"initial_context_length", FORM, OSS}, /* of rope_scaling, once more */
    /* layers */
    {"activation_function", READ, GPT2},
    {"layer_norm_epsilon", READ, GPT2},
    {"scale_attn_weights", READ, GPT2},
    {"scale_attn_by_inverse_layer_idx", READ, GPT2},
    {"add_cross_attention", READ, BOTH},
    {"is_encoder_decoder", READ, BOTH},
    {"tie_word_embeddings", READ, BOTH},
    {"quantization_config", READ, BOTH},
    {"pruned_heads", READ, BOTH},
    {"hidden_act", READ, LLAMA},
    {"rms_norm_eps", READ, LLAMA},
    {"mlp_bias", READ, LLAMA},
    {"attention_bias", READ, LLAMA},
    {"attention_out_bias", READ, SEED},
    {"rope_theta", READ, LLAMA},
    {"rope_local_base_freq", READ, GEMMA3},
    {"sliding_window_pattern", READ, GEMMA3 | EXAONE},
    /* what transformers writes beside the list that it follows from */
    {"_sliding_window_pattern", FORM, GEMMA3},
    {"query_pre_attn_scalar", READ, GEMMA2},
    {"attn_logit_softcapping", READ, GEMMA2},
    {"final_logit_softcapping", READ, GEMMA2},
    {"sliding_window_size", FORM, GEMMA2}, /* sliding_window once more */
    {"hidden_activation", READ, GEMMA},
    {"use_bidirectional_attention", READ, GEMMA},
    {"rope_scaling", READ, LLAMA},
    {"rope_parameters", READ, LLAMA},
    {"partial_rotary_factor", READ, LLAMA},
    {"rope_interleaved", READ, LLAMA},
    {"rope_interleave", READ, LLAMA},
    {"use_mrope", READ, LLAMA},
    {"sliding_window", READ, LLAMA},
    {"use_sliding_window", READ, LLAMA},
    {"max_window_layers", READ, LLAMA},
    {"layer_types", READ, LLAMA},
    {"embedding_multiplier", READ, GRANITE},
    {"attention_multiplier", READ, GRANITE},
    {"residual_multiplier", READ, GRANITE},
    {"logits_scaling", READ, GRANITE},
    {"no_rope_layers", READ, LLAMA},
    {"no_rope_layer_interval", READ, LLAMA},
    {"router_jitter_noise", READ, LLAMA},
    /* training */
    {"attn_pdrop", DROPOUT, GPT2},
    {"embd_pdrop", DROPOUT, GPT2},
    {"embd_pdrop", UNREAD, PHI3},
    {"resid_pdrop", DROPOUT, GPT2 | PHI3},
    {"residual_dropout", DROPOUT, SEED},
    {"attention_dropout", DROPOUT, LLAMA},
    {"hidden_dropout", DROPOUT, LLAMA},
    {"initializer_range", FIRST, BOTH},
    {"router_aux_loss_coef", TRAIN, LLAMA}, /* model.experts_balance */
    {"output_router_logits", TRAIN, LLAMA},
    {"gradient_checkpointing", RUN, BOTH},
    /* tokens and generation */
    {"bos_token_id", TOKENS, BOTH},
    {"eos_token_id", TOKENS, BOTH},
    {"pad_token_id", TOKENS, BOTH},
    {"sep_token_id", TOKENS, BOTH},
    {"decoder_start_token_id", TOKENS, BOTH},
    {"tokenizer_class", TOKENS, BOTH},
    {"prefix", TOKENS, BOTH},
    {"max_length", GENERATE, BOTH},
    {"min_length", GENERATE, BOTH},
    {"do_sample", GENERATE, BOTH},
    {"early_stopping", GENERATE, BOTH},
    {"num_beams", GENERATE, BOTH},
    {"num_beam_groups", GENERATE, BOTH},
    {"diversity_penalty", GENERATE, BOTH},
    {"temperature", GENERATE, BOTH},
    {"top_k", GENERATE, BOTH},
    {"top_p", GENERATE, BOTH},
    {"typical_p", GENERATE, BOTH},
    {"repetition_penalty", GENERATE, BOTH},
    {"length_penalty", GENERATE, BOTH},
    {"no_repeat_ngram_size", GENERATE, BOTH},
    {"cache_implementation", GENERATE, BOTH},
    {"encoder_no_repeat_ngram_size", GENERATE, BOTH},
    {"bad_words_ids", GENERATE, BOTH},
    {"num_return_sequences", GENERATE, BOTH},
    {"output_scores", GENERATE, BOTH},
    {"return_dict_in_generate", GENERATE, BOTH},
    {"forced_bos_token_id", GENERATE, BOTH},
    {"forced_eos_token_id", GENERATE, BOTH},
    {"remove_invalid_values", GENERATE, BOTH},
    {"exponential_decay_length_penalty", GENERATE, BOTH},
    {"suppress_tokens", GENERATE, BOTH},
    {"begin_suppress_tokens", GENERATE, BOTH},
    {"task_specific_params", GENERATE, BOTH},
    /* a text model beside one of images, which is left out */
    {"text_config", READ, IMAGES},
    {"vision_config", TASK, IMAGES},
    {"boi_token_index", TOKENS, IMAGES},
    {"eoi_token_index", TOKENS, IMAGES},
    {"image_token_index", TOKENS, IMAGES},
    /* other tasks */
    {"architectures", TASK, BOTH},
    {"id2label", TASK, BOTH},
    {"label2id", TASK, BOTH},
    {"num_labels", TASK, BOTH},
    {"_num_labels", TASK, BOTH}, /* of distilgpt2, of old versions */
    {"problem_type", TASK, BOTH},
    {"finetuning_task", TASK, BOTH},
    {"classifier_dropout", TASK, BOTH},
    {"summary_type", TASK, BOTH},
    {"summary_use_proj", TASK, BOTH},
    {"summary_activation", TASK, BOTH},
    {"summary_first_dropout", TASK, BOTH},
    {"summary_proj_to_labels", TASK, BOTH},
    /* files and running */
    {"_name_or_path", FORM, BOTH},
    {"name_or_path", FORM, BOTH},
    {"_commit_hash", FORM, BOTH},
    {"transformers_version", FORM, BOTH},
    {"transformers.js_config", FORM, BOTH},
    {"torch_dtype", FORM, BOTH},
    {"dtype", FORM, BOTH},
    {"auto_map", FORM, BOTH},
    {"is_llama_config", FORM, LLAMA},
    {"unsloth_version", FORM, BOTH},
    {"unsloth_fixed", FORM, BOTH},
    {"is_decoder", RUN, BOTH},
    {"tie_encoder_decoder", RUN, BOTH},
    {"output_past", RUN, BOTH}, /* use_cache of old versions */
    {"use_cache", RUN, BOTH},
    {"return_dict", RUN, BOTH},
    {"output_attentions", RUN, BOTH},
    {"output_hidden_states", RUN, BOTH},
    {"chunk_size_feed_forward", RUN, BOTH},
    {"torchscript", RUN, BOTH},
    {"use_bfloat16", RUN, BOTH},
    {"tf_legacy_loss", RUN, BOTH},
    {"pretraining_tp", RUN, LLAMA},
    {"reorder_and_upcast_attn", RUN, GPT2},
    {"attn_implementation", RUN, BOTH},
    {"_attn_implementation", RUN, BOTH},
    {"_attn_implementation_autoset", RUN, BOTH},
    {"_flash_attn_2_enabled", RUN, BOTH},
};

enum { NKEYS = sizeof(keys) / sizeof(keys[0]) };

static unsigned short kind_of(const char *type)
{
    if (strcmp(type, "gpt2") == 0)
        return GPT2;
    if (strcmp(type, "glm4_moe") == 0)
        return LLAMA | GLM;
    if (strcmp(type, "glm4_moe_lite") == 0)
        return LLAMA | LATENT | LITE;
    if (strcmp(type, "minimax_m2") == 0)
        return LLAMA | MINIMAX;
    if (strcmp(type, "exaone4") == 0)
        return LLAMA | EXAONE;
    if (strcmp(type, "seed_oss") == 0)
        return LLAMA | SEED;
    if (strncmp(type, "deepseek_v", 10) == 0 || strcmp(type, "kimi_k2") == 0)
        return LLAMA | LATENT;
    if (strcmp(type, "llama4") == 0)
        return IMAGES;
    if (strcmp(type, "llama4_text") == 0)
        return LLAMA | LLAMA4;
    if (strcmp(type, "granite") == 0)
        return LLAMA | GRANITE;
    if (strcmp(type, "gpt_oss") == 0)
        return LLAMA | OSS;
    if (strcmp(type, "gemma3_text") == 0)
        return LLAMA | GEMMA | GEMMA2 | GEMMA3;
    if (strcmp(type, "gemma2") == 0)
        return LLAMA | GEMMA | GEMMA2;
    if (strcmp(type, "gemma") == 0)
        return LLAMA | GEMMA;
    return strcmp(type, "phi3") == 0 ? LLAMA | PHI3 : LLAMA;
}

/* A key that is null says nothing, whatever it is. */
int plait_hf_check_keys(const struct plait_hf_read *r, const char *type)
{
    unsigned short mine = kind_of(type);
    char want[160];
    const char *key;
    json_t *value;

    snprintf(want, sizeof(want),
             "plait-train does not know this key of a %.40s model; remove it "
             "if the model is the same without it",
             type);
    json_object_foreach((json_t *)r->root, key, value)
    {
        int i = 0;

        while (i < NKEYS &&
               (strcmp(keys[i].name, key) != 0 || !(keys[i].types & mine)))
            i++;
        if (i == NKEYS && !json_is_null(value))
            return plait_hf_refuse(r, key, value, want);
    }
    return 0;
}
