"""Pictures with classes: bundled digits, CIFAR-10 from its public files, folders of pictures; patches of them."""
