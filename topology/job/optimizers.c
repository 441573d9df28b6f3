/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/optimizers.h"

#include <stdio.h>

enum {
    BETAS = PLAIT_KEY_BETAS,
    EPS = PLAIT_KEY_EPS,
    MOMENTUM = PLAIT_KEY_MOMENTUM,
    NESTEROV = PLAIT_KEY_NESTEROV,
    TRUST = PLAIT_KEY_TRUST,
    FREQUENCY = PLAIT_KEY_FREQUENCY,
    MAX_DIM = PLAIT_KEY_MAX_DIM,
    MUON = PLAIT_KEY_MUON_HEADS | PLAIT_KEY_MUON_COEFFICIENTS
};

const char *const plait_optim_key_names[PLAIT_NOPTIM_KEYS] = {
    "betas",     "eps",     "momentum",   "nesterov",         "trust",
    "frequency", "max_dim", "muon_heads", "muon_coefficients"};

const char *const plait_muon_coefficient_names[PLAIT_NMUON_COEFFICIENTS] = {
    "quintic", "polar-express"};

const char *const plait_moments_names[PLAIT_NMOMENTS] = {"fp32", "bf16",
                                                         "bf16-nearest"};

const char *const plait_masters_names[PLAIT_NMASTERS] = {"fp32", "bf16"};

const char *const plait_optimizer_names[PLAIT_NOPTIMIZERS] = {
    "adamw",     "sgd",       "lars", "larc", "lamb", "novograd",
    "adafactor", "adamw8bit", "lion", "muon", "soap", "schedulefree"};

/* adamw8bit: two codes of a byte, and two fp32 scales to each block of 256. */
const struct plait_optimizer plait_optimizers[PLAIT_NOPTIMIZERS] = {
    {"adamw", BETAS | EPS, {"m", "v"}, 8, true, false, 0, false},
    {"sgd", MOMENTUM | NESTEROV, {"momentum"}, 4, true, false, 0, false},
    {"lars",
     MOMENTUM | NESTEROV | TRUST,
     {"momentum"},
     4,
     false,
     false,
     0,
     false},
    {"larc",
     MOMENTUM | NESTEROV | TRUST,
     {"momentum"},
     4,
     false,
     false,
     0,
     false},
    {"lamb", BETAS | EPS, {"m", "v"}, 8, false, false, 0, false},
    {"novograd", BETAS | EPS, {"m"}, 4, false, false, 0, false},
    {"adafactor", 0, {"v"}, 0, false, true, 0, false},
    {"adamw8bit",
     BETAS | EPS,
     {"m", "v"},
     2 + 8.0 / 256,
     false,
     false,
     0,
     true},
    {"lion", BETAS, {"m"}, 4, true, false, 0, false},
    {"muon",
     BETAS | EPS | MOMENTUM | NESTEROV | MUON,
     {"m", "v"},
     8,
     false,
     true,
     4,
     false},
    {"soap",
     BETAS | EPS | FREQUENCY | MAX_DIM,
     {"m", "v"},
     8,
     false,
     true,
     0,
     false},
    {"schedulefree", BETAS | EPS, {"lead", "v"}, 8, false, false, 0, false},
};

static bool keeps_none(const struct plait_optim_config *c)
{
    return plait_optimizers[c->kind].keys & MOMENTUM && c->momentum == 0 &&
           !plait_optimizers[c->kind].uneven;
}

int plait_optim_nstates(const struct plait_optim_config *c)
{
    const struct plait_optimizer *o = &plait_optimizers[c->kind];
    int n = 0;

    if (keeps_none(c) || o->uneven || o->codes)
        return 0;
    while (n < PLAIT_OPTIM_STATES && o->state[n])
        n++;
    return n;
}

int plait_optim_state_size(const struct plait_optim_config *c)
{
    return c->moments == PLAIT_MOMENTS_FP32 ? 4 : 2;
}

double plait_optim_state_bytes(const struct plait_optim_config *c)
{
    return keeps_none(c) ? 0
                         : plait_optimizers[c->kind].bytes *
                               plait_optim_state_size(c) / 4;
}

void plait_optim_describe(const struct plait_optim_config *c, char *text,
                          size_t size)
{
    snprintf(text, size, "%s%s", plait_optimizers[c->kind].name,
             keeps_none(c) ? " without momentum" : "");
}
