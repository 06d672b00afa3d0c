"""Methods that take more than one transaction: files, waiting, Git; one module per noun."""
