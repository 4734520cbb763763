from bolide.kernel.columns import Columns as Columns
