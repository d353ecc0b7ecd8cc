// Package images reads a folder of class folders that hold JPEG and PNG files, or a tar, tar.gz or tar.zst of one.
//
// Two arrangements are known, with or without one more folder around them:
//
//	CLASS/…/FILE          the part held out for evaluation is chosen: Options.ValFraction of each class
//	train/CLASS/…/FILE    evaluation on val/CLASS/…/FILE, else on test/CLASS/…/FILE, else as above
//
// ImageNet is also read as it is given out: a folder with ILSVRC2012_img_train.tar (a tar of a tar for each class) and, if
// there is one, ILSVRC2012_img_val.tar; the train tar alone; and Kaggle's unpacked archive. Validation images that lie in no
// class folders need LOC_val_solution.csv, or val.txt (image and class or number a line), beside them. A
// LOC_synset_mapping.txt or synset_words.txt there gives classes their names.
//
// Classes are the folder names in byte order; samples are ordered by class, then by name, so that a folder and a tar of
// it are the same data set. Files and folders whose names begin with a dot are passed over, as is __MACOSX; other files
// that are not .jpg, .jpeg or .png are counted and logged.
//
// A plain tar is indexed at Open and read at random places. A compressed one is expanded into Options.CacheDir once.
// Archives are never extracted; package archive says what is refused. A folder is read through os.Root: a link that
// leads out of it is an error.
//
// The file's contents decide whether it is JPEG or PNG. Grey images become RGB, transparency is dropped: colours are those that
// the file states. 16 bits a channel lose the lower 8. Four-ink JPEGs (CMYK, YCCK) are taken as Adobe writes them. EXIF
// orientation is applied only if DecodeOptions.Orient is set. Images of more than data.FullDecodePixels pixels are decoded at half, a quarter or an eighth of
// their size where no more is needed (JPEG with libturbojpeg).
package images
