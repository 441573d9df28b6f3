/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_SOAP_REFERENCE_H
#define PLAIT_TESTS_SOAP_REFERENCE_H

#include <stddef.h>

#include "topology/job/optimizers.h"

/* SOAP of one matrix in double, written as plainly as possible: eigenvectors by
 * Jacobi rotations, every product a loop over elements. */
struct soap_reference;

struct soap_reference *soap_reference_create(size_t rows, size_t cols,
                                             const float *weights);
void soap_reference_destroy(struct soap_reference *r);
/* Where to write the next step's gradient, and the weights. */
double *soap_reference_gradient(struct soap_reference *r);
const double *soap_reference_weights(const struct soap_reference *r);
/* How far rounding of the projections in fp32 can have moved the weights, in
 * the 2-norm: an element of a projected gradient that happens to be near 0
 * starts with a second moment as small, by which it is divided. */
double soap_reference_slack(const struct soap_reference *r);
void soap_reference_step(struct soap_reference *r,
                         const struct plait_optim_config *config, double lr);

#endif
