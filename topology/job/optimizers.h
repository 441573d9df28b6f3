/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_OPTIMIZERS_H
#define PLAIT_TOPOLOGY_JOB_OPTIMIZERS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The optimizers: their names, the keys each one takes, and what it keeps of
 * every weight. The runtime allocates and saves by this table, the estimate
 * counts by it. */

enum plait_optim_kind {
    PLAIT_OPTIM_ADAMW,
    PLAIT_OPTIM_SGD,
    PLAIT_OPTIM_LARS,
    PLAIT_OPTIM_LARC,
    PLAIT_OPTIM_LAMB,
    PLAIT_OPTIM_NOVOGRAD,
    PLAIT_OPTIM_ADAFACTOR,
    PLAIT_OPTIM_ADAMW8BIT,
    PLAIT_OPTIM_LION,
    PLAIT_OPTIM_MUON,
    PLAIT_OPTIM_SOAP,
    PLAIT_OPTIM_SCHEDULEFREE,
    PLAIT_NOPTIMIZERS
};

/* Keys of `optim:` that not all optimizers take; bits. The others (lr,
 * weight_decay, clip, qk_clip) are for all. */
enum plait_optim_key {
    PLAIT_KEY_BETAS = 1,
    PLAIT_KEY_EPS = 2,
    PLAIT_KEY_MOMENTUM = 4,
    PLAIT_KEY_NESTEROV = 8,
    PLAIT_KEY_TRUST = 16,
    PLAIT_KEY_FREQUENCY = 32,
    PLAIT_KEY_MAX_DIM = 64,
    PLAIT_KEY_MUON_HEADS = 128,
    PLAIT_KEY_MUON_COEFFICIENTS = 256
};
enum { PLAIT_NOPTIM_KEYS = 9 };
extern const char *const plait_optim_key_names[PLAIT_NOPTIM_KEYS];

/* Numbers kept per weight, beside the master weight. */
enum { PLAIT_OPTIM_STATES = 2 };

struct plait_optimizer {
    const char *name;
    unsigned keys; /* enum plait_optim_key */
    /* Names of the states, "m" for optim.m.TENSOR in a checkpoint; NULL ends
     * the list. With momentum 0, an optimizer with that key keeps no state. */
    const char *state[PLAIT_OPTIM_STATES];
    double bytes;  /* of all states of one weight; with `uneven`, of a weight
                      outside the layers' matrices */
    bool separate; /* states are fp32, and each weight is updated from its own
                      gradient and state alone, as offload requires, and is
                      trained where it is kept, as sync.mode requires: not
                      with an average beside it */
    bool uneven;   /* not every tensor has the same states */
    double matrix; /* with `uneven`: bytes of a weight in a layer's matrices */
    bool codes;    /* states are codes of a byte, not fp32 */
};

extern const struct plait_optimizer plait_optimizers[PLAIT_NOPTIMIZERS];
extern const char *const plait_optimizer_names[PLAIT_NOPTIMIZERS];

/* By what polynomials Muon orthogonalizes (runtime/optim/orthogonal.h). */
enum plait_muon_coefficients {
    PLAIT_MUON_QUINTIC,
    PLAIT_MUON_POLAR_EXPRESS,
    PLAIT_NMUON_COEFFICIENTS
};
extern const char *const plait_muon_coefficient_names[PLAIT_NMUON_COEFFICIENTS];

/* How an optimizer's states are kept: those of bf16 are rounded stochastically,
 * or to nearest, as Megatron's precision-aware optimizer does. */
enum plait_moments {
    PLAIT_MOMENTS_FP32,
    PLAIT_MOMENTS_BF16,
    PLAIT_MOMENTS_BF16_NEAREST,
    PLAIT_NMOMENTS
};
extern const char *const plait_moments_names[PLAIT_NMOMENTS];

/* bf16: the weights that the model computes with have no master; a step rounds
 * them stochastically. */
enum plait_masters { PLAIT_MASTERS_FP32, PLAIT_MASTERS_BF16, PLAIT_NMASTERS };
extern const char *const plait_masters_names[PLAIT_NMASTERS];

struct plait_optim_config {
    enum plait_optim_kind kind; /* YAML key `name` */
    double lr;
    double betas[2];
    double eps;
    double momentum; /* 0: none */
    bool nesterov;
    double trust;    /* eta of LARS and LARC */
    int frequency;   /* steps from one basis of SOAP to the next */
    int max_dim;     /* the longest side that SOAP has a basis of */
    bool muon_heads; /* Muon takes each head of q, k and v as a matrix */
    enum plait_muon_coefficients muon_coefficients;
    enum plait_moments moments;
    enum plait_masters masters;
    double weight_decay;
    double clip;         /* 0: no clipping */
    double qk_clip;      /* the largest attention logit, tau; 0: none */
    unsigned keys_given; /* enum plait_optim_key: by the file or --set */
};

/* Whether gradients are taken at other weights than the masters, which are then
 * kept beside weights in fp32 too. */
static inline bool
plait_optim_is_averaged(const struct plait_optim_config *config)
{
    return config->kind == PLAIT_OPTIM_SCHEDULEFREE;
}

/* How many states a weight has that are not codes: the first of
 * plait_optimizer.state. */
int plait_optim_nstates(const struct plait_optim_config *config);
/* Bytes of one of them. */
int plait_optim_state_size(const struct plait_optim_config *config);
/* Bytes of all of them. */
double plait_optim_state_bytes(const struct plait_optim_config *config);
/* Optimizers that work on whole matrices deal these to the ranks that hold the
 * same layers: the matrix that costs the most comes first, and goes to the rank
 * with the least cost so far, of equals to the first. This rule is what
 * runtime/optim/whole_plan.c deals by and what the estimate counts with. Cost
 * is proportional to a product of such matrices, or of parts of `together` rows
 * (optim.muon_heads). */
static inline double plait_optim_matrix_cost(double rows, double columns,
                                             double together)
{
    return rows * columns * (together < columns ? together : columns);
}
/* Whether a rank takes the next matrix rather than another one. */
static inline bool plait_optim_takes(double cost, int rank, double other_cost,
                                     int other_rank)
{
    return cost < other_cost || (cost == other_cost && rank < other_rank);
}
/* The name, and the keys that determine the state: state can be loaded only
 * into an optimizer with the same description. */
void plait_optim_describe(const struct plait_optim_config *config, char *text,
                          size_t size);

#ifdef __cplusplus
}
#endif
#endif
