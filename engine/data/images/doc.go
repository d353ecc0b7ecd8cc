// Package images reads images from a folder of class folders, or from a tar, tar.gz or tar.zst of such a
// folder.
//
// It supports two layouts. Each may be enclosed by one additional folder:
//
//	CLASS/…/FILE          Open holds out Options.ValFraction of each class for evaluation
//	train/CLASS/…/FILE    evaluation uses val/CLASS/…/FILE, else test/CLASS/…/FILE, else a part of train as above
//
// Package layout has the rule for the names of parts, and for links. A folder with the name of a part, but without
// subfolders, is a class if other folders are classes.
//
// Package images also reads the distributed forms of ImageNet:
//
//   - a folder with ILSVRC2012_img_train.tar, which contains one tar per class, and optionally ILSVRC2012_img_val.tar
//   - the train tar alone
//   - Kaggle's unpacked archive
//
// Validation images without class folders need LOC_val_solution.csv or val.txt in the same folder. Each line of
// val.txt contains an image and its class or class number. LOC_synset_mapping.txt or synset_words.txt in the same
// folder contains the names of the classes.
//
// Classes are the folder names in byte order. Samples are sorted by class, then by name. A folder and a tar of this
// folder are therefore the same data set. Files of storage systems (package layout) are ignored. Images have
// the endings of torchvision's ImageFolder. Other files are counted and logged. A class that has only images of other
// formats, such as AVIF, HEIC and GIF, is an error.
//
// Package layout lists a folder without a call per file, and keeps the list of a large folder in Options.CacheDir. The
// Loader announces images, so that they are fetched before they are needed; see data.Fetcher.
//
// Open indexes a plain tar and reads it at random offsets. It decompresses a compressed tar once, to a plain tar in
// Options.CacheDir. It never unpacks a tar into separate files. Package archive documents the members that are
// refused. A link to a target outside a folder is an error unless Options.FollowLinks is set.
//
// The contents of a file determine its format: JPEG, PNG, WebP, BMP, TIFF, GIF, PPM, PGM or PBM. Of several images in a
// file, the first one is decoded. TIFF images are always rotated upright, as Pillow does.
//
// Grey images become RGB. Transparency is dropped; the stored colours remain. 16-bit channels lose the lower 8 bits.
// JPEGs with four inks (CMYK, YCCK) are decoded by Adobe's convention, as Pillow does. EXIF orientation is applied only
// if DecodeOptions.Orient is set. JPEGs of more than data.FullDecodePixels pixels are decoded at 1/2, 1/4 or 1/8 of
// their size if the reduced size is sufficient.
package images
