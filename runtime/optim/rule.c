/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/rule.h"

#include <math.h>

/* Biases and norms (tensors without weight decay) keep the factor 1 in LARS,
 * LARC and LAMB, as in the authors' code: the norm of such a tensor says
 * nothing about its scale. */

static bool adapts(bool decay, const struct plait_tensor_norms *n)
{
    return decay && n->weight > 0 && n->other > 0;
}

/* You, Gitman, Ginsburg, "Large batch training of convolutional networks"
 * (arXiv:1708.03888), equation 6. */
static double lars_factor(const struct plait_optim_config *c, double lr,
                          bool decay, const struct plait_tensor_norms *n,
                          float *state)
{
    (void)lr;
    (void)state;
    if (!adapts(decay, n))
        return 1;
    return c->trust * n->weight / (n->other + c->weight_decay * n->weight);
}

/* LARS as an upper bound: the rate of a tensor is never more than lr (NVIDIA
 * Apex, LARC in its mode `clip`; timm, Lars with trust_clip). */
static double larc_factor(const struct plait_optim_config *c, double lr,
                          bool decay, const struct plait_tensor_norms *n,
                          float *state)
{
    if (!adapts(decay, n) || !(lr > 0))
        return 1;
    return fmin(lars_factor(c, lr, decay, n, state) / lr, 1);
}

/* You et al., "Large batch optimization for deep learning"
 * (arXiv:1904.00962), algorithm 2 with phi(x) = x. */
static double lamb_factor(const struct plait_optim_config *c, double lr,
                          bool decay, const struct plait_tensor_norms *n,
                          float *state)
{
    (void)c;
    (void)lr;
    (void)state;
    return adapts(decay, n) ? n->weight / n->other : 1;
}

/* Ginsburg et al., "Stochastic gradient methods with layer-wise adaptive
 * moments" (arXiv:1905.11286), algorithm 1: *state is v, which starts as the
 * first |g|^2. */
static double novograd_factor(const struct plait_optim_config *c, double lr,
                              bool decay, const struct plait_tensor_norms *n,
                              float *state)
{
    double g2 = n->other * n->other, beta2 = c->betas[1];

    (void)lr;
    (void)decay;
    *state = (float)(*state > 0 ? beta2 * *state + (1 - beta2) * g2 : g2);
    return 1 / (sqrt(*state) + c->eps);
}

/* Shazeer and Stern (arXiv:1804.04235), algorithm 5, as implemented in
 * torch.optim.Adafactor: rho = min(lr, 1 / sqrt t), the step size is max(1e-3,
 * RMS(w)) rho / max(1, RMS(u)), weight decay uses lr. */
static double adafactor_factor(const struct plait_optim_config *c, double lr,
                               bool decay, const struct plait_tensor_norms *n,
                               float *state)
{
    double root = sqrt(n->elements);
    double rho = fmin(lr, 1 / sqrt((double)n->step));

    (void)c;
    (void)decay;
    (void)state;
    if (!(lr > 0))
        return 0;
    return fmax(1e-3, n->weight / root) * rho / lr / fmax(1, n->other / root);
}

static const struct plait_optim_rule rules[PLAIT_NOPTIMIZERS] = {
    [PLAIT_OPTIM_ADAMW] = {.update = PLAIT_UPDATE_ADAMW},
    [PLAIT_OPTIM_SGD] = {.update = PLAIT_UPDATE_SGD},
    [PLAIT_OPTIM_LARS] = {.update = PLAIT_UPDATE_LARS, .factor = lars_factor},
    [PLAIT_OPTIM_LARC] = {.update = PLAIT_UPDATE_SGD, .factor = larc_factor},
    [PLAIT_OPTIM_LAMB] = {.update = PLAIT_UPDATE_LAMB, .factor = lamb_factor},
    [PLAIT_OPTIM_NOVOGRAD] = {.update = PLAIT_UPDATE_NOVOGRAD,
                              .factor = novograd_factor,
                              .tensor_state = "v"},
    [PLAIT_OPTIM_ADAMW8BIT] = {.update = PLAIT_UPDATE_ADAMW},
    [PLAIT_OPTIM_LION] = {.update = PLAIT_UPDATE_LION},
    [PLAIT_OPTIM_SCHEDULEFREE] = {.update = PLAIT_UPDATE_SCHEDULEFREE},
    [PLAIT_OPTIM_ADAFACTOR] = {.update = PLAIT_UPDATE_DIRECTION,
                               .factor = adafactor_factor,
                               .direction = &plait_adafactor},
    [PLAIT_OPTIM_MUON] = {.update = PLAIT_UPDATE_ADAMW,
                          .direction = &plait_muon},
    [PLAIT_OPTIM_SOAP] = {.update = PLAIT_UPDATE_ADAMW,
                          .direction = &plait_soap},
};

const struct plait_optim_rule *plait_optim_rule(enum plait_optim_kind kind)
{
    return &rules[kind];
}
