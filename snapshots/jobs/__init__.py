"""What runs on Spark. The only place that imports pyspark."""
