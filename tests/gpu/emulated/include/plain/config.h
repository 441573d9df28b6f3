/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing is configured: no cuDNN. */
