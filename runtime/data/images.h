/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_DATA_IMAGES_H
#define PLAIT_RUNTIME_DATA_IMAGES_H

#include "runtime/data/segment.h"

/* Files of images: IDX, which is MNIST's format (images in one file, labels in
 * another beside it), and the binary files of CIFAR-10 and CIFAR-100 (label
 * and image in turn, 3 x 32 x 32). */

/* IDX begins with two zeros, the type (8: bytes), the number of dimensions and
 * the dimensions, 32 bits each, big-endian. Images have three, [n, H, W], or
 * four, [n, C, H, W]. */
#define PLAIT_IDX_BYTES 8

/* Whether the file is one of images, by its first bytes or, for CIFAR, which
 * has no header, its size. */
bool plait_images_guess(const char *path, const unsigned char *head, size_t n,
                        enum plait_data_format *format);

/* As plait_segment_open() with that format: s->path is set. */
int plait_images_open_idx(struct plait_segment *s, struct plait_error *err);
int plait_images_open_cifar(struct plait_segment *s,
                            enum plait_data_format format,
                            struct plait_error *err);

/* Open the labels of IDX images s: in the file whose name has "labels" for
 * "images" and idx1 for idx3 or idx4, as many as there are images. */
int plait_images_open_labels(struct plait_segment *labels,
                             const struct plait_segment *s,
                             struct plait_error *err);

#endif
