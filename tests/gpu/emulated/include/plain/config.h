/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for configure's config.h: no feature is configured, so no cuDNN. */
